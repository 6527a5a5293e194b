// The sequence positions of a tensor's rows. On one rank, a tensor (B * S, n) has all positions of
// each sequence, one sequence after another. With context parallelism, a rank has two runs of each
// sequence's positions; the mesh axis "sequence" splits these further; and with tensor parallelism,
// some tensors have only a range of the remaining rows. Pure arithmetic; cheap to copy.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "trainer_core/base/check.h"

namespace muster::trainer {

// Consecutive positions.
struct PositionRun {
  int64_t position = 0;  // the first position
  int64_t count = 0;

  // Returns one more than the last position.
  constexpr int64_t end() const { return position + count; }
  friend constexpr bool operator==(const PositionRun&, const PositionRun&) = default;
};

// The positions of every sequence that a rank has, in row order. The runs are disjoint and not
// empty; they may be in any order.
class Positions {
 public:
  // Maximum number of runs. With context parallelism, a rank has a chunk of the sequence's first
  // half and the mirrored chunk of the second half (Llama 3, 2024, section 3.3.2).
  static constexpr int kRunsMax = 2;

  constexpr Positions() = default;  // no positions
  constexpr explicit Positions(PositionRun run) { add(run); }
  constexpr Positions(PositionRun first, PositionRun second) {
    add(first);
    add(second);
  }
  // Returns the positions 0 … count - 1.
  static constexpr Positions first(int64_t count) { return Positions(PositionRun{0, count}); }

  constexpr int runs() const { return runs_; }
  constexpr const PositionRun& run(int i) const { return run_[static_cast<size_t>(i)]; }
  constexpr int64_t count() const {
    int64_t count = 0;
    for (int i = 0; i < runs_; ++i) count += run(i).count;
    return count;
  }
  // Returns one more than the last position.
  constexpr int64_t end() const {
    int64_t end = 0;
    for (int i = 0; i < runs_; ++i) end = std::max(end, run(i).end());
    return end;
  }
  // Returns the positions from row `row` to the end of its run.
  constexpr PositionRun rest_of_run(int64_t row) const {
    int i = 0;
    while (row >= run(i).count) row -= run(i++).count;
    return {run(i).position + row, run(i).count - row};
  }
  // Returns the position of row `row` in a sequence.
  constexpr int64_t at(int64_t row) const { return rest_of_run(row).position; }
  // Returns the positions of rows [first, first + count).
  constexpr Positions slice(int64_t first, int64_t count) const {
    Positions part;
    while (count > 0) {
      PositionRun run = rest_of_run(first);
      run.count = std::min(run.count, count);
      part.add(run);
      first += run.count;
      count -= run.count;
    }
    return part;
  }

  friend constexpr bool operator==(const Positions&, const Positions&) = default;

 private:
  // Appends a run; merges it with the last run if the two are adjacent.
  constexpr void add(PositionRun run) {
    if (run.count <= 0) return;
    if (runs_ > 0 && run_[static_cast<size_t>(runs_ - 1)].end() == run.position) {
      run_[static_cast<size_t>(runs_ - 1)].count += run.count;
      return;
    }
    MUSTER_CHECK(runs_ < kRunsMax) << "positions in more than " << kRunsMax << " runs";
    run_[static_cast<size_t>(runs_++)] = run;
  }

  std::array<PositionRun, kRunsMax> run_{};
  int runs_ = 0;
};

// Maps the rows of a tensor (R, …) to sequences and positions. The tensor has rows [first, first +
// R) of all rows of B sequences, which each have these positions.
struct TokenRows {
  Positions positions = Positions::first(1);
  int64_t first = 0;

  // NOLINTBEGIN(clang-analyzer-core.DivideZero): there is a position at least.
  constexpr int64_t sequence(int64_t row) const { return (first + row) / positions.count(); }
  constexpr int64_t position(int64_t row) const {
    return positions.at((first + row) % positions.count());
  }
  // NOLINTEND(clang-analyzer-core.DivideZero)

  // Calls body(row, sequence, run) for each stretch of rows in [begin, end) that belong to one
  // sequence and have consecutive positions. `run` has these positions.
  template <class Body>
  void for_runs(int64_t begin, int64_t end, const Body& body) const {
    const int64_t each = positions.count();
    while (begin < end) {
      const int64_t row = first + begin;
      PositionRun run = positions.rest_of_run(row % each);
      run.count = std::min(run.count, end - begin);
      body(begin, row / each, run);
      begin += run.count;
    }
  }
};

// Maps the elements of a tensor (R, n) to samples and to indices in samples. A sample's elements
// are those of position 0, then those of position 1, and so on. Counter-based random numbers use
// these indices, so they do not depend on the distribution of samples, positions and columns over
// batches and ranks.
struct SampleElements {
  uint64_t first_sample = 0;  // number of the sample that is the first sequence
  TokenRows rows{};           // by default, each row is a sample
  // number of the tensor's first column, if tensor parallelism splits columns
  int64_t first_column = 0;
  int64_t columns = 0;  // total number of columns; 0: the tensor's n

  // Calls body(sample, index in the sample, index in the tensor, count) for each stretch of
  // consecutive elements in rows [begin, end).
  template <class Body>
  void for_stretches(int64_t n, int64_t begin, int64_t end, const Body& body) const {
    const int64_t width = columns == 0 ? n : columns;
    rows.for_runs(begin, end, [&](int64_t row, int64_t sequence, const PositionRun& run) {
      const uint64_t sample = first_sample + static_cast<uint64_t>(sequence);
      if (width == n) return body(sample, run.position * n, row * n, run.count * n);
      for (int64_t i = 0; i < run.count; ++i)
        body(sample, (run.position + i) * width + first_column, (row + i) * n, n);
    });
  }
};

}  // namespace muster::trainer
