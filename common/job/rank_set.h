// A set of ranks stored as ranges: readable ("0-511,513-1023"), and small for 100,000 ranks that
// wait in the same frame. The interface uses only the standard library. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster {

class RankSet {
 public:
  struct Range {
    int32_t first = 0;
    int32_t last = 0;  // inclusive

    friend bool operator==(const Range&, const Range&) = default;
  };

  RankSet() = default;
  // Returns the set of all ranks in `ranges`, which may overlap and have any order. Ranges come
  // from messages: one whose last is below its first, or whose first is negative, is ignored.
  static RankSet of(std::vector<Range> ranges);

  // Adds `rank`; ignores a negative one. Amortised O(1) for ascending ranks.
  void add(int32_t rank);
  // Adds the ranks of `other`. The cost is proportional to the ranges of `other`, plus the ranges
  // of this set that lie between the first and the last rank of `other`.
  void add(const RankSet& other);
  bool contains(int32_t rank) const;
  int64_t size() const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // disjoint, not adjacent, ascending

  // Returns the ranges as text: "0-511,513-1023", "3" or "". A set of more than `ranges_max` ranges
  // is cut, and its size is added: "0,2,4,… (512 in all)".
  std::string text(size_t ranges_max = 16) const;

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  // Merges `added` into ranges_. Requires that `added` is disjoint, not adjacent and ascending.
  void splice(std::span<const Range> added);

  std::vector<Range> ranges_;
};

}  // namespace muster
