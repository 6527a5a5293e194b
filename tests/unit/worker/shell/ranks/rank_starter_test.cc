// Starts that succeed, that fail, and that hang in a file system.
#include "worker/shell/ranks/rank_starter.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>

#include "tests/unit/hanging_file.h"
#include "tests/unit/worker/shell/shell_fixture.h"
#include "worker/shell/ranks/node_fault.h"

namespace muster::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class RankStarterTest : public ShellTest {
 protected:
  void SetUp() override { ASSERT_TRUE(Reaper::adopt_orphans().ok()); }

  SpawnRank request(std::vector<std::string> command, std::string directory, int rank = 0) {
    auto launch = std::make_shared<Launch>();
    launch->job = JobId(7);
    launch->attempt = Attempt(1);
    launch->spec.nodes = 1;
    launch->spec.ranks_per_node = 4;
    launch->spec.command = std::move(command);
    launch->spec.working_directory = std::move(directory);
    launch->rendezvous_address = "127.0.0.1:4242";
    launch->program_port = 12'345;
    return {{launch->job, launch->attempt, Rank(rank)}, rank, launch};
  }

  // Runs the loop until the condition holds.
  bool runs_until(const std::function<bool()>& condition) {
    return eventually([&] {
      loop.restart();
      loop.poll();
      return condition();
    });
  }

  boost::asio::io_context loop{1};
  Launcher launcher{{.work_dir = folder,
                     .trainer = "/bin/true",
                     .bind_address = "127.0.0.1",
                     .incarnation = Incarnation(5)},
                    {"PATH=/usr/bin:/bin"}};
  Reaper reaper{"/proc"};
  std::vector<pid_t> started;
  std::vector<absl::Status> failed;
  RankStarter starter{loop,
                      launcher,
                      reaper,
                      [this](const SpawnRank&, pid_t pid) { started.push_back(pid); },
                      [this](const SpawnRank&, const absl::Status& why) { failed.push_back(why); },
                      /*deadline=*/std::chrono::milliseconds(500)};
};

TEST_F(RankStarterTest, StartsARankAndLeavesItToTheReaper) {
  const SpawnRank wanted = request({"/bin/sh", "-c", "echo here; exit 3"}, folder, 1);
  starter.start(wanted);
  std::vector<ReapedProcess> ends;
  ASSERT_TRUE(runs_until([&] {
    for (const ReapedProcess& end : reaper.reap())
      if (!starter.settle(end.key)) ends.push_back(end);
    return !ends.empty();
  }));
  EXPECT_THAT(started, SizeIs(1)) << "before its end";
  EXPECT_EQ(ends[0].exit_code, 3);
  EXPECT_THAT(failed, SizeIs(0));
  EXPECT_EQ(launcher.last_shown_line(wanted.key), "here");
}

TEST_F(RankStarterTest, AChildThatCannotBeItsProgramIsNoEndOfARank) {
  starter.start(request({"/bin/true"}, folder / "nowhere", 1));
  std::vector<ReapedProcess> ends;
  ASSERT_TRUE(runs_until([&] {
    for (const ReapedProcess& end : reaper.reap())
      if (!starter.settle(end.key)) ends.push_back(end);
    return !failed.empty();
  }));
  EXPECT_TRUE(absl::IsNotFound(failed[0])) << failed[0];
  EXPECT_FALSE(is_node_fault(failed[0]));
  EXPECT_THAT(started, SizeIs(0));
  EXPECT_THAT(ends, SizeIs(0));
}

TEST_F(RankStarterTest, AFolderOfTheWorkerThatFailsIsTheNodes) {
  std::ofstream(folder / "7") << "a file in the way";
  starter.start(request({"/bin/true"}, folder, 1));
  ASSERT_TRUE(runs_until([&] { return !failed.empty(); }));
  EXPECT_TRUE(is_node_fault(failed[0])) << failed[0];
}

TEST_F(RankStarterTest, WhatHangsIsGivenUpAndDelaysNoOther) {
  std::filesystem::create_directories(folder / "7" / "1");
  write_file(folder / "7" / "1" / "rank-1.log", "");
  const HangingFile log(folder / "7" / "1" / "rank-1.log");
  if (!log.hangs()) GTEST_SKIP() << "only root can make a file hang";
  starter.start(request({"/bin/true"}, folder, 1));
  starter.start(request({"/bin/sleep", "60"}, folder, 2));
  ASSERT_TRUE(runs_until([&] { return !started.empty(); }));
  EXPECT_THAT(failed, SizeIs(0)) << "the other rank did not wait";
  ASSERT_TRUE(runs_until([&] { return !failed.empty(); }));
  EXPECT_TRUE(is_node_fault(failed[0]));
  EXPECT_THAT(std::string(failed[0].message()), HasSubstr("has not responded for 0.5 s"));
  kill(started[0], SIGKILL);
}

}  // namespace
}  // namespace muster::worker
