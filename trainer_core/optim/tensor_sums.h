// Sums over the elements of tensors that several ranks store in parts. The rank adds its own
// elements first; add_up() then adds the sums of all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/optim/optimizer.h"

namespace muster::trainer {

// The sums of the tensors of some buckets. Called on one thread at a time.
class TensorSums {
 public:
  // Creates `numbers(spec)` sums for each tensor of buckets [first, last). A rank has sums for all
  // tensors of its buckets, even if it stores no element of a tensor, so that all ranks of a group
  // have the same number of sums.
  template <class Values>
  TensorSums(const ShardLayout& layout, size_t first, size_t last, const Values& sums_per_tensor)
      : first_(first), ranges_(last - first) {
    // Buckets by group, so that a group's sums are adjacent.
    std::map<GroupAxes, std::vector<size_t>> buckets;
    for (size_t i = first; i < last; ++i) buckets[layout.buckets()[i].tensor_group].push_back(i);
    for (const auto& [group, of_group] : buckets) {
      const size_t begin = sums_.size();
      for (const size_t i : of_group) {
        for (const ShardRow& row : layout.buckets()[i].rows) {
          const auto count = static_cast<size_t>(sums_per_tensor(layout.table()[row.param]));
          ranges_[i - first].push_back({sums_.size(), count});
          sums_.resize(sums_.size() + count);
        }
      }
      // A group without axes consists of this rank only.
      if (group.axes != AxisSet{}) groups_.push_back({group, begin, sums_.size() - begin});
    }
  }

  // Sets all sums to 0.
  void clear();
  // Returns the sums of the tensor of a piece.
  std::span<double> of(const ShardPiece& piece);
  // Replaces each sum by the total over all ranks that store parts of its tensor. Returns the
  // errors of `exchange`.
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
  std::vector<std::vector<SumRange>> ranges_;  // indexed by bucket, then by row
  // Groups of more than one rank, in the order of GroupAxes.
  std::vector<Group> groups_;
  std::vector<double> sums_;
};

}  // namespace muster::trainer
