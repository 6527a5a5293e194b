#include "worker/shell/logs/output_watch.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

using std::chrono::seconds;

const RankKey kRank{JobId(1), Attempt(1), Rank(0)};

TEST(OutputWatchTest, ReturnsTheTimeOfTheLastGrowth) {
  const Instant begin = Instant() + seconds(100);
  OutputWatch outputs;
  EXPECT_EQ(outputs.last_written(kRank, std::nullopt, begin), Instant()) << "it has no log yet";
  EXPECT_EQ(outputs.last_written(kRank, 0, begin + seconds(1)), Instant());
  EXPECT_EQ(outputs.last_written(kRank, 7, begin + seconds(2)), begin + seconds(2));
  EXPECT_EQ(outputs.last_written(kRank, 7, begin + seconds(9)), begin + seconds(2));
  // Another program has truncated the log.
  EXPECT_EQ(outputs.last_written(kRank, 0, begin + seconds(10)), begin + seconds(10));
  EXPECT_EQ(outputs.last_written(kRank, std::nullopt, begin + seconds(11)), begin + seconds(10));
}

}  // namespace
}  // namespace muster::worker
