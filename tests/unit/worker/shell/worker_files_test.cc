// Files that the real muster-worker leaves in its work directory.
#include <gmock/gmock.h>

#include <chrono>
#include <string>

#include "tests/unit/hanging_file.h"
#include "tests/unit/worker/shell/worker_fixture.h"
#include "worker/core/core.h"
#include "worker/shell/ranks/launch_folders.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;

TEST_F(WorkerTest, OldLaunchesAreRemovedAndOtherFilesStay) {
  const LaunchFolders folders(folder / "work");
  constexpr uint64_t kOld = kLaunchesKeptMax + 1;
  for (uint64_t job = 1; job <= kOld; ++job) {  // jobs of an earlier run; the first is the oldest
    const LaunchKey launch{JobId(job + 100), Attempt(1)};
    fs::create_directories(folders.folder(launch));
    std::ofstream(folders.config_path(launch)) << "{}";
    fs::last_write_time(folders.config_path(launch),
                        fs::file_time_type::clock::now() - std::chrono::hours(100 - job));
  }
  std::ofstream(folder / "work/102/1/core") << "theirs";
  begin(script("echo done"));
  EXPECT_TRUE(eventually([&] { return !fs::exists(folder / "work/101"); })) << worker_log();
  EXPECT_THAT(folders.find(), SizeIs(kLaunchesKeptMax));

  for (uint64_t job = 1; job <= 2; ++job) {
    start_ranks(1, 2, job);
    for (int i = 0; i < 2; ++i) {
      const auto exited = coordinator.next_exit();
      ASSERT_TRUE(exited) << worker_log();
      coordinator.acknowledge(exited->report_id());
    }
  }
  EXPECT_TRUE(eventually([&] { return !fs::exists(folder / "work/103"); })) << worker_log();
  EXPECT_EQ(read_file(folder / "work/102/1/core"), "theirs");
  EXPECT_FALSE(fs::exists(folder / "work/102/1/config.json"));
  EXPECT_TRUE(fs::exists(folder / "work/104/1/config.json"));
  EXPECT_EQ(read_file(folder / "work/1/1/rank-0.log"), "done\n");
  EXPECT_THAT(folders.find(), SizeIs(kLaunchesKeptMax));
}

// The worker starts with umask 022, the default of most shells.
TEST_F(WorkerTest, ItsFilesArePrivateAndItsRanksHaveTheUsersUmask) {
  begin(script("umask; echo x > ../../../checkpoint"));
  start_ranks(1, 1);
  ASSERT_TRUE(coordinator.next_exit()) << worker_log();
  EXPECT_EQ(read_file(folder / "work/1/1/rank-0.log"), "0022\n");
  EXPECT_EQ(fs::status(folder / "checkpoint").permissions(), fs::perms(0644));
  EXPECT_EQ(fs::status(folder / "ports").permissions(), fs::perms(0644))
      << "for the program that started it";
  constexpr fs::perms kOthers = fs::perms::group_all | fs::perms::others_all;
  size_t files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "work")) {
    EXPECT_EQ(entry.status().permissions() & kOthers, fs::perms::none) << entry.path();
    ++files;
  }
  EXPECT_GE(files, 5U) << "worker.lock, two folders, config.json and a log";
  EXPECT_EQ(fs::status(folder / "work").permissions() & kOthers, fs::perms::none);
}

// The progress page is in a file system that does not respond. Heartbeats come without figures, and
// the end of the rank is reported.
TEST_F(WorkerTest, APageThatCannotBeReadDelaysNoHeartbeat) {
  begin(
      script(": > $MUSTER_PROGRESS_PAGE; touch ../../../ready; "
             "while ! [ -e ../../../leave ]; do sleep 0.01; done; exit 7"));
  start_ranks(1, 1);
  ASSERT_TRUE(next_with_ranks(1)) << worker_log();
  ASSERT_TRUE(eventually([&] { return fs::exists(folder / "ready"); })) << worker_log();
  HangingFile page(folder / "work/1/1/progress.0");
  if (!page.hangs()) GTEST_SKIP() << "only root can make a file hang";
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(coordinator.next([](const v1::WorkerMessage& m) { return m.has_heartbeat(); }))
        << worker_log();
  }
  std::ofstream(folder / "leave") << "x";
  const auto exited = coordinator.next_exit();
  ASSERT_TRUE(exited) << worker_log();
  EXPECT_EQ(exited->exit_code(), 7);
}

}  // namespace
}  // namespace muster::worker
