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
  void add_line(int32_t rank, std::string_view text, int64_t ms = 1'000, uint32_t attempt = 1) {
    collect(merger_.add(attempt, rank, ms * 1'000'000, text, now_));
  }
  void collect(const std::vector<MergedLine>& lines) {
    for (const MergedLine& line : lines)
      merged_.push_back(absl::StrCat(line.attempt, "/", line.ranks.text(), " ", line.text));
  }
  std::string merged() {
    collect(merger_.flush());
    return absl::StrJoin(std::exchange(merged_, {}), "; ");
  }

  LineMerger merger_;
  Instant now_ = instant_from_ns(1);
  std::vector<std::string> merged_;
};

TEST_F(LineMergerTest, EqualLinesOfRanksAreMerged) {
  for (int32_t rank = 0; rank < 512; ++rank) add_line(rank, "loading");
  add_line(7, "my disk is full");
  EXPECT_EQ(merged(), "1/0-511 loading; 1/7 my disk is full");
}

TEST_F(LineMergerTest, RepeatedLinesOfOneRankAreNotMerged) {
  add_line(0, "a");
  add_line(0, "a");
  add_line(1, "a");
  EXPECT_EQ(merged(), "1/0 a; 1/0-1 a");
}

TEST_F(LineMergerTest, LinesOfARankKeepTheirOrder) {
  add_line(0, "a");
  add_line(0, "b");
  add_line(1, "b");
  add_line(1, "a");  // after b, where no line stands that it could join
  EXPECT_EQ(merged(), "1/0 a; 1/0-1 b; 1/1 a");
}

TEST_F(LineMergerTest, LinesOfDifferentAttemptsAreNotMerged) {
  add_line(0, "a", 1'000, 1);
  add_line(1, "a", 1'000, 2);
  EXPECT_EQ(merged(), "1/0 a; 2/1 a");
}

TEST_F(LineMergerTest, LinesASecondApartAreNotMerged) {
  add_line(0, "a", 1'000);
  add_line(1, "a", 2'000);
  EXPECT_TRUE(merged_.empty());
  add_line(2, "x", 2'001);
  EXPECT_EQ(merged_, std::vector<std::string>{"1/0-1 a"});
  add_line(3, "a", 2'100);
  EXPECT_EQ(merged(), "1/0-1 a; 1/2 x; 1/3 a");
}

TEST_F(LineMergerTest, ALineWaitsAtMostASecond) {
  add_line(0, "a");
  now_ += milliseconds(600);
  add_line(0, "b");
  collect(merger_.due(now_));
  EXPECT_TRUE(merged_.empty());
  now_ += milliseconds(500);
  collect(merger_.due(now_));
  EXPECT_EQ(merged_, std::vector<std::string>{"1/0 a"});
  EXPECT_FALSE(merger_.empty());
}

TEST_F(LineMergerTest, WithoutTimestampsTheBoundHolds) {
  for (int i = 0; i < 10'000; ++i) add_line(0, absl::StrCat("line ", i), 0);
  EXPECT_GT(merged_.size(), 5'000U);
  add_line(1, std::string(8 << 20, 'x'), 0);
  EXPECT_TRUE(merger_.empty());
}

}  // namespace
}  // namespace muster::cli
