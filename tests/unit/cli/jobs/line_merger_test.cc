#include "cli/jobs/line_merger.h"

#include <chrono>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using std::chrono::milliseconds;

class LineMergerTest : public testing::Test {
 protected:
  void say(int32_t rank, std::string_view text, int64_t ms = 1'000, uint32_t attempt = 1) {
    tell(merger_.add(attempt, rank, ms * 1'000'000, text, now_));
  }
  void tell(const std::vector<MergedLine>& lines) {
    for (const MergedLine& line : lines)
      told_.push_back(absl::StrCat(line.attempt, "/", line.ranks.text(), " ", line.text));
  }
  std::string told() {
    tell(merger_.flush());
    return absl::StrJoin(std::exchange(told_, {}), "; ");
  }

  LineMerger merger_;
  Instant now_ = instant_from_ns(1);
  std::vector<std::string> told_;
};

TEST_F(LineMergerTest, EqualLinesOfRanksAreMerged) {
  for (int32_t rank = 0; rank < 512; ++rank) say(rank, "loading");
  say(7, "my disk is full");
  EXPECT_EQ(told(), "1/0-511 loading; 1/7 my disk is full");
}

TEST_F(LineMergerTest, RepeatedLinesOfOneRankAreNotMerged) {
  say(0, "a");
  say(0, "a");
  say(1, "a");
  EXPECT_EQ(told(), "1/0 a; 1/0-1 a");
}

TEST_F(LineMergerTest, LinesOfARankKeepTheirOrder) {
  say(0, "a");
  say(0, "b");
  say(1, "b");
  say(1, "a");  // after b, where no line stands that it could join
  EXPECT_EQ(told(), "1/0 a; 1/0-1 b; 1/1 a");
}

TEST_F(LineMergerTest, LinesOfDifferentAttemptsAreNotMerged) {
  say(0, "a", 1'000, 1);
  say(1, "a", 1'000, 2);
  EXPECT_EQ(told(), "1/0 a; 2/1 a");
}

TEST_F(LineMergerTest, LinesASecondApartAreNotMerged) {
  say(0, "a", 1'000);
  say(1, "a", 2'000);
  EXPECT_TRUE(told_.empty());
  say(2, "x", 2'001);
  EXPECT_EQ(told_, std::vector<std::string>{"1/0-1 a"});
  say(3, "a", 2'100);
  EXPECT_EQ(told(), "1/0-1 a; 1/2 x; 1/3 a");
}

TEST_F(LineMergerTest, ALineWaitsAtMostASecond) {
  say(0, "a");
  now_ += milliseconds(600);
  say(0, "b");
  tell(merger_.due(now_));
  EXPECT_TRUE(told_.empty());
  now_ += milliseconds(500);
  tell(merger_.due(now_));
  EXPECT_EQ(told_, std::vector<std::string>{"1/0 a"});
  EXPECT_FALSE(merger_.empty());
}

TEST_F(LineMergerTest, WithoutTimestampsTheBoundHolds) {
  for (int i = 0; i < 10'000; ++i) say(0, absl::StrCat("line ", i), 0);
  EXPECT_GT(told_.size(), 5'000U);
  say(1, std::string(8 << 20, 'x'), 0);
  EXPECT_TRUE(merger_.empty());
}

}  // namespace
}  // namespace muster::cli
