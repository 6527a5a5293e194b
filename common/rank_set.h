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
  // Builds a set from ranges in any order, which may overlap. Skips a range whose last is below its
  // first or whose first is negative: ranges come from messages.
  static RankSet of(std::vector<Range> ranges);

  // Adds `rank`; ignores a negative one. Amortised O(1) for ascending ranks.
  void add(int32_t rank);
  // Adds the ranks of `other`. Cost: the ranges of `other` and the ranges here that lie between its
  // ends.
  void add(const RankSet& other);
  bool contains(int32_t rank) const;
  int64_t size() const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // disjoint, not adjacent, ascending

  // Returns "0-511,513-1023"; "3"; "". Beyond `ranges_max` ranges the rest becomes a count:
  // "0,2,4,… (512 in all)".
  std::string text(size_t ranges_max = 16) const;

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  // Requires `added` in the form of ranges().
  void splice(std::span<const Range> added);

  std::vector<Range> ranges_;
};

}  // namespace muster
