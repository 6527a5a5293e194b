// The tiles of the CPU's attention kernels, and the scratch memory of one of their tasks. Sizes are
// in fp32 elements; where a kernel stores pairs of bf16 elements, a pair takes the place of one
// fp32 element. Pure arithmetic, which the memory plan uses, too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer_core/ops/attention_shape.h"

namespace muster::trainer::cpu {

// Number of queries or keys of a tile. A tile of scores (16 KiB) stays in the first-level cache
// beside its operands.
constexpr int64_t kTile = 64;
// Head widths are padded with zeros to a multiple of this number, the lanes of the widest vectors.
constexpr int64_t kLanePad = 16;

// On a tile of the diagonal, each block of this many queries uses only the keys up to the block's
// end, which saves 6/16 of the work.
constexpr int64_t kDiagonalBlock = 16;
static_assert(kDiagonalBlock % kLanePad == 0 && kTile % kDiagonalBlock == 0);

// Returns the smallest multiple of `multiple` that is at least `value`.
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Consecutive rows of a sequence that belong to one run of positions.
struct Tile {
  int64_t index = 0;  // number among the sequence's tiles
  int64_t row = 0;    // the first row's number in the sequence
  int64_t rows = 0;   // number of rows, at most kTile; fewer only at the end of a run
  // position of the first row
  int64_t position = 0;

  constexpr int64_t last() const { return position + rows - 1; }
};

// Returns the number of tiles.
constexpr int64_t tiles_of(const Positions& positions) {
  int64_t tiles = 0;
  for (int i = 0; i < positions.runs(); ++i) tiles += (positions.run(i).count + kTile - 1) / kTile;
  return tiles;
}

// Calls body(tile) for each tile that contains a position in [first, last], in row order.
template <class Body>
constexpr void for_tiles(const Positions& positions, int64_t first, int64_t last,
                         const Body& body) {
  int64_t index = 0, row = 0;
  for (int i = 0; i < positions.runs(); ++i) {
    const PositionRun& run = positions.run(i);
    const int64_t begin = std::max<int64_t>(first - run.position, 0) / kTile * kTile;
    const int64_t end = first < run.end() ? std::min(last + 1 - run.position, run.count) : 0;
    for (int64_t at = begin; at < end; at += kTile) {
      body(Tile{index + at / kTile, row + at, std::min(kTile, run.count - at), run.position + at});
    }
    index += (run.count + kTile - 1) / kTile;
    row += run.count;
  }
}
template <class Body>
constexpr void for_tiles(const Positions& positions, const Body& body) {
  for_tiles(positions, 0, positions.end() - 1, body);
}

// Returns the size of a row of relative biases. Room follows the biases, because a block on the
// diagonal also reads biases for keys after a query; their scores are masked afterwards.
constexpr int64_t bias_row_elements(int64_t positions) {
  return round_up(positions + kDiagonalBlock, kLanePad);
}

// Sizes of the scratch of one task, in elements.
struct AttentionLayout {
  int64_t tiles;        // key tiles of a sequence
  int64_t padded_head;  // columns of a packed row: h, padded
  int64_t packed;       // a head's keys or values, rows padded: (tiles * kTile, padded_head)
  int64_t transposed;   // the same keys or values, each tile transposed to (h, kTile)
  int64_t score_tile;   // (kTile, kTile)
  int64_t row_tile;     // (kTile, padded_head)
  int64_t bias_row;     // a head's relative biases; 0: none

  constexpr AttentionLayout(const AttentionShape& shape, const Positions& keys)
      : tiles(tiles_of(keys)),
        padded_head(round_up(shape.head_dim, kLanePad)),
        packed(tiles * kTile * padded_head),
        transposed(tiles * kTile * shape.head_dim),
        score_tile(kTile * kTile),
        row_tile(kTile * padded_head),
        bias_row(shape.buckets.exist() ? bias_row_elements(shape.row_positions().end()) : 0) {}

  // Returns the elements of a forward task: Kᵀ, V, a tile of scores, tiles of queries and outputs,
  // biases.
  constexpr int64_t forward_elements() const {
    return transposed + packed + score_tile + 2 * row_tile + bias_row;
  }
  // Returns the elements of a backward task: Kᵀ, Vᵀ, K, dK, dV; tiles of scores and their gradient;
  // tiles of queries, output gradients and query gradients; biases and their gradient.
  constexpr int64_t backward_elements() const {
    return 2 * transposed + 3 * packed + 2 * score_tile + 3 * row_tile + 2 * bias_row;
  }
};

}  // namespace muster::trainer::cpu
