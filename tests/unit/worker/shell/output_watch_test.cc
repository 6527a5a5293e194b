#include "worker/shell/output_watch.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

using std::chrono::seconds;

const RankKey kRank{JobId(1), Attempt(1), Rank(0)};

TEST(OutputWatchTest, ReturnsTheTimeOfTheLastGrowth) {
  const TempFolder folder;
  const std::string log = folder.file("rank.log");
  const Instant begin = Instant() + seconds(100);
  OutputWatch outputs;
  EXPECT_EQ(outputs.last_written(kRank, log, begin), Instant()) << "it has no log yet";
  write_file(log, "");
  EXPECT_EQ(outputs.last_written(kRank, log, begin + seconds(1)), Instant());
  write_file(log, "step 1\n");
  EXPECT_EQ(outputs.last_written(kRank, log, begin + seconds(2)), begin + seconds(2));
  EXPECT_EQ(outputs.last_written(kRank, log, begin + seconds(9)), begin + seconds(2));
  write_file(log, "");  // truncated by another program
  EXPECT_EQ(outputs.last_written(kRank, log, begin + seconds(10)), begin + seconds(10));
  std::filesystem::remove(log);
  EXPECT_EQ(outputs.last_written(kRank, log, begin + seconds(11)), begin + seconds(10));
}

}  // namespace
}  // namespace muster::worker
