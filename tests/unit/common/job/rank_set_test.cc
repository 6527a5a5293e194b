#include "common/job/rank_set.h"

#include <limits>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace muster {
namespace {

constexpr int32_t kLargest = std::numeric_limits<int32_t>::max();

void expect_same(const RankSet& set, const std::set<int32_t>& reference) {
  ASSERT_EQ(set.size(), static_cast<int64_t>(reference.size())) << set.text(1000);
  int64_t before = -2;
  for (const RankSet::Range& range : set.ranges()) {
    EXPECT_GT(range.first, before + 1) << set.text(1000);  // neither overlapping nor adjacent
    EXPECT_LE(range.first, range.last);
    before = range.last;
  }
  for (int32_t rank = 0; rank < 130; ++rank)
    EXPECT_EQ(set.contains(rank), reference.contains(rank)) << rank << " in " << set.text(1000);
}

TEST(RankSet, IsASetHoweverItIsMade) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    RankSet set;
    std::set<int32_t> reference;
    for (unsigned step = random() % 12; step > 0; --step) {
      std::vector<RankSet::Range> ranges;
      std::set<int32_t> ranks;
      for (unsigned n = random() % 6; n > 0; --n) {
        const auto first = static_cast<int32_t>(random() % 100);
        const auto last = first + static_cast<int32_t>(random() % (random() % 4 == 0 ? 20 : 2));
        ranges.push_back({first, last});
        for (int32_t rank = first; rank <= last; ++rank) ranks.insert(rank);
      }
      reference.merge(ranks);
      if (random() % 2 == 0) {
        set.add(RankSet::of(ranges));
      } else {
        for (const RankSet::Range& range : ranges)
          for (int32_t rank = range.last; rank >= range.first; --rank) set.add(rank);
      }
      expect_same(set, reference);
    }
    EXPECT_EQ(set, RankSet::of(set.ranges()));
  }
}

TEST(RankSet, SkipsInvalidRangesOfMessages) {
  EXPECT_EQ(RankSet::of({{3, 2}, {-1, 5}, {7, 7}}).text(), "7");
  RankSet set;
  set.add(-1);
  EXPECT_TRUE(set.empty());
  set = RankSet::of({{0, kLargest}, {kLargest, kLargest}, {kLargest - 1, kLargest}});
  EXPECT_EQ(set.size(), int64_t{kLargest} + 1);
  set.add(kLargest);
  set.add(set);
  EXPECT_EQ(set.text(), "0-2147483647");
}

TEST(RankSet, TextIsBoundedRanges) {
  EXPECT_EQ(RankSet().text(), "");
  EXPECT_EQ(RankSet::of({{513, 1023}, {0, 511}}).text(), "0-511,513-1023");
  RankSet every_second;
  for (int32_t rank = 0; rank < 1024; rank += 2) every_second.add(rank);
  EXPECT_EQ(every_second.text(3), "0,2,4,… (512 in all)");
  EXPECT_EQ(RankSet::of({{0, 1}, {3, 4}}).text(2), "0-1,3-4");
}

}  // namespace
}  // namespace muster
