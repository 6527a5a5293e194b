#include "worker/shell/evidence/oom_kill_history.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

using std::chrono::seconds;

class OomKillHistoryTest : public testing::Test {
 protected:
  OomKillHistoryTest() {
    for (const char* path : {"proc/1", "cgroup/job"})
      std::filesystem::create_directories(folder.file(path));
    write_file(folder.file("proc/1/cgroup"), "0::/job\n");
    write_file(folder.file("cgroup/job/memory.events"), "oom_kill 3\n");
  }

  OomKillHistory history() const {
    return {OomKillCounter::of(folder.file("proc"), folder.file("cgroup"), 1), start};
  }

  const TempFolder folder;
  const Instant start = instant_from_ns(1'000'000'000'000);
};

TEST_F(OomKillHistoryTest, WithoutSamplesTheCountAtTheStartIsKnown) {
  const OomKillHistory kills = history();
  EXPECT_EQ(kills.counter().count(), 3);
  EXPECT_EQ(kills.count_before(start), 3);
  EXPECT_EQ(kills.count_before(start + std::chrono::hours(100)), 3);
}

TEST_F(OomKillHistoryTest, AKillIsRecentForItsMaximumAge) {
  OomKillHistory kills = history();
  const Instant kill = start + std::chrono::hours(24);
  for (Instant t = start; t < kill; t += std::chrono::hours(1)) kills.add(3, t);
  kills.add(4, kill);
  EXPECT_EQ(kills.count_before(kill), 3);
  EXPECT_EQ(kills.count_before(kill + kOomKillAge - Duration(1)), 3);
  EXPECT_EQ(kills.count_before(kill + kOomKillAge), 4);
  kills.add(5, kill + seconds(20));
  kills.add(5, kill + seconds(40));
  EXPECT_EQ(kills.count_before(kill + seconds(40)), 4) << "the second kill is 20 s old";
  EXPECT_EQ(kills.count_before(kill + seconds(50)), 5);
  for (int day = 2; day < 6; ++day) kills.add(5, start + std::chrono::hours(24 * day));
  EXPECT_EQ(kills.count_before(start + std::chrono::hours(24 * 5)), 5);
}

TEST_F(OomKillHistoryTest, CountsThatAreUnavailableOrLateAreIgnored) {
  OomKillHistory kills = history();
  kills.add(-1, start + seconds(1));
  kills.add(9, start - seconds(1));
  EXPECT_EQ(kills.count_before(start + std::chrono::hours(1)), 3);
  std::filesystem::remove(folder.file("cgroup/job/memory.events"));
  OomKillHistory none = history();
  none.add(7, start + seconds(1));
  EXPECT_EQ(none.count_before(start + std::chrono::hours(1)), -1)
      << "a rise is unknown without the count at the start";
  EXPECT_EQ(OomKillHistory().count_before(start), -1);
}

}  // namespace
}  // namespace muster::worker
