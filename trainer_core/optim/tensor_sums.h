// Sums over whole tensors of which ranks store parts: a place for each, and how they are added up over the ranks.
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
  // Of the tensors of buckets [first, last), `numbers(spec)` each. A rank has a place for all tensors of its buckets, whatever
  // it stores of them: the same as the others of their group.
  template <class Numbers>
  TensorSums(const ShardLayout& layout, size_t first, size_t last, const Numbers& numbers)
      : first_(first), places_(last - first) {
    std::map<GroupAxes, std::vector<size_t>> buckets;  // those of one group side by side
    for (size_t i = first; i < last; ++i) buckets[layout.buckets()[i].tensor_group].push_back(i);
    for (const auto& [group, of_group] : buckets) {
      const size_t begin = sums_.size();
      for (const size_t i : of_group) {
        for (const ShardRow& row : layout.buckets()[i].rows) {
          const auto count = static_cast<size_t>(numbers(layout.table()[row.param]));
          places_[i - first].push_back({sums_.size(), count});
          sums_.resize(sums_.size() + count);
        }
      }
      // The axes of a group have more than one rank each.
      if (group.axes != AxisSet{}) groups_.push_back({group, begin, sums_.size() - begin});
    }
  }

  void clear();
  // Those of the piece's whole tensor.
  std::span<double> of(const ShardPiece& piece);
  // What was added to them here becomes what was added on all ranks.
  absl::Status add_up(SumExchange* exchange);

 private:
  struct Place {
    size_t begin, count;
  };
  struct Group {
    GroupAxes axes;
    size_t begin, count;
  };

  size_t first_;
  std::vector<std::vector<Place>> places_;  // by bucket, then row
  std::vector<Group> groups_;               // of more than one rank, in their order
  std::vector<double> sums_;
};

}  // namespace muster::trainer
