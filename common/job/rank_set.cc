#include "common/job/rank_set.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

namespace muster {
namespace {

using Range = RankSet::Range;

// Returns whether `range` begins at the latest directly after `before`, so that both form one
// range. Requires that it does not begin earlier.
bool touches(const Range& before, const Range& range) {
  return int64_t{range.first} <= int64_t{before.last} + 1;
}

// Appends a range that begins no earlier than the last one.
void append(std::vector<Range>& ranges, const Range& range) {
  if (!ranges.empty() && touches(ranges.back(), range)) {
    ranges.back().last = std::max(ranges.back().last, range.last);
  } else {
    ranges.push_back(range);
  }
}

bool begins_earlier(const Range& a, const Range& b) { return a.first < b.first; }

}  // namespace

RankSet RankSet::of(std::vector<Range> ranges) {
  std::erase_if(ranges, [](const Range& r) { return r.first < 0 || r.last < r.first; });
  std::sort(ranges.begin(), ranges.end(), begins_earlier);
  RankSet set;
  for (const Range& range : ranges) append(set.ranges_, range);
  set.ranges_.shrink_to_fit();
  return set;
}

void RankSet::add(int32_t rank) {
  if (rank < 0) return;
  const Range range{rank, rank};
  if (ranges_.empty() || ranges_.back().first <= rank) return append(ranges_, range);
  splice({&range, 1});
}

void RankSet::add(const RankSet& other) {
  if (&other != this) splice(other.ranges_);
}

// Rewrites only the ranges between the first and the last added range. Sets of neighbouring ranks
// therefore cost time in proportion to their own size, in any order of arrival.
void RankSet::splice(std::span<const Range> added) {
  if (added.empty()) return;
  const auto begin = std::partition_point(
      ranges_.begin(), ranges_.end(), [&](const Range& r) { return !touches(r, added.front()); });
  const auto end = std::partition_point(begin, ranges_.end(),
                                        [&](const Range& r) { return touches(added.back(), r); });
  if (begin == ranges_.end()) {
    ranges_.insert(ranges_.end(), added.begin(), added.end());
    return;
  }
  std::vector<Range> both(static_cast<size_t>(end - begin) + added.size());
  std::merge(begin, end, added.begin(), added.end(), both.begin(), begins_earlier);
  std::vector<Range> joined;
  joined.reserve(both.size());
  for (const Range& range : both) append(joined, range);
  const auto kept = std::min(end - begin, static_cast<std::ptrdiff_t>(joined.size()));
  const auto rest = std::copy_n(joined.begin(), kept, begin);
  if (rest == end) {
    ranges_.insert(end, joined.begin() + kept, joined.end());
  } else {
    ranges_.erase(rest, end);
  }
}

bool RankSet::contains(int32_t rank) const {
  const auto range = std::partition_point(ranges_.begin(), ranges_.end(),
                                          [&](const Range& r) { return r.last < rank; });
  return range != ranges_.end() && range->first <= rank;
}

int64_t RankSet::size() const {
  int64_t size = 0;
  for (const Range& range : ranges_) size += int64_t{range.last} - range.first + 1;
  return size;
}

std::string RankSet::text(size_t ranges_max) const {
  std::string out;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (i == ranges_max) {
      absl::StrAppend(&out, i > 0 ? "," : "", "… (", size(), " in all)");
      break;
    }
    absl::StrAppend(&out, i > 0 ? "," : "", ranges_[i].first);
    if (ranges_[i].last > ranges_[i].first) absl::StrAppend(&out, "-", ranges_[i].last);
  }
  return out;
}

}  // namespace muster
