// A set of ranks as ranges: what people read ("0-511,513-1023") and what stays small for a hundred thousand ranks that wait in
// the same place. std only in its interface; a value.
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
    int32_t last = 0;  // included

    friend bool operator==(const Range&, const Range&) = default;
  };

  RankSet() = default;
  // Of ranges in any order, which may overlap. One whose last is below its first, or whose first is negative, is left out: they come
  // from messages.
  static RankSet of(std::vector<Range> ranges);

  // A negative rank is none. Amortised O(1) for growing ranks.
  void add(int32_t rank);
  // Grows with `other`, and with the ranges here that lie between its ends.
  void add(const RankSet& other);
  bool contains(int32_t rank) const;
  int64_t size() const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<Range>& ranges() const { return ranges_; }  // disjoint, not adjacent, growing

  // "0-511,513-1023"; "3"; "". Beyond `ranges_max` ranges the rest is told as a number: "0,2,4,… (512 in all)".
  std::string text(size_t ranges_max = 16) const;

  friend bool operator==(const RankSet&, const RankSet&) = default;

 private:
  void splice(std::span<const Range> added);  // which are as ranges() are

  std::vector<Range> ranges_;
};

}  // namespace muster
