// Sums over tensors that several ranks store in parts: an element for each sum, and their addition
// over ranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

// One thread.
class TensorSums {
 public:
  // Creates `numbers(spec)` sums for each tensor of buckets [first, last). A rank has sums for all
  // tensors of its buckets, also for those of which it stores nothing, so all ranks of a group have
  // the same.
  template <class Numbers>
  TensorSums(const ShardLayout& layout, size_t first, size_t last, const Numbers& numbers)
      : first_(first), ranges_(last - first) {
    std::map<GroupAxes, std::vector<size_t>> buckets;  // those of one group side by side
    for (size_t i = first; i < last; ++i) buckets[layout.buckets()[i].tensor_group].push_back(i);
    for (const auto& [group, of_group] : buckets) {
      const size_t begin = sums_.size();
      for (const size_t i : of_group) {
        for (const ShardRow& row : layout.buckets()[i].rows) {
          const auto count = static_cast<size_t>(numbers(layout.table()[row.param]));
          ranges_[i - first].push_back({sums_.size(), count});
          sums_.resize(sums_.size() + count);
        }
      }
      // The axes of a group have more than one rank each.
      if (group.axes != AxisSet{}) groups_.push_back({group, begin, sums_.size() - begin});
    }
  }

  void clear();
  // Returns the sums of the piece's tensor.
  std::span<double> of(const ShardPiece& piece);
  // Adds the sums of all ranks that store the tensors, in place.
  absl::Status add_up(SumExchange* exchange);

 private:
  struct SumRange {
    size_t begin, count;
  };
  struct Group {
    GroupAxes axes;
    size_t begin, count;
  };

  size_t first_;
  std::vector<std::vector<SumRange>> ranges_;  // by bucket, then row
  std::vector<Group> groups_;                  // of more than one rank, in their order
  std::vector<double> sums_;
};

}  // namespace muster::trainer
