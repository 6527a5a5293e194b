// The node check as the worker runs it: whatever its program does, there is an answer in time.
#include "worker/shell/node_checker.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include <boost/asio/executor_work_guard.hpp>
#include <gtest/gtest.h>

#include "tests/unit/temp_folder.h"

namespace muster::worker {
namespace {

class NodeCheckerTest : public testing::Test {
 protected:
  // Runs a script in place of the check.
  NodeCheckDone run(const std::string& script, Duration deadline = std::chrono::seconds(20)) {
    const std::string path = folder_.file("program");
    write_file(path, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return run_node_check({path, folder_.path(), folder_.file("shm"), deadline});
  }
  // Runs a script in place of a deep check.
  DeepCheckDone run_deep(const std::string& script) {
    const std::string path = folder_.file("program");
    write_file(path, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return run_deep_check({path, folder_.path(), folder_.file("shm")},
                          {.seconds = 2,
                           .deadline = std::chrono::seconds(60),
                           .storage_folder = "/data",
                           .group_rank = 1,
                           .group_size = 3,
                           .rendezvous_address = "10.0.0.1:5",
                           .group_id = 9},
                          stop_);
  }
  NodeCheckDone run_real(const std::string& work_dir) {
    return run_node_check(
        {MUSTER_TRAINER, work_dir, folder_.file("shm"), std::chrono::seconds(60)});
  }

  TempFolder folder_;
  std::atomic<bool> stop_{false};
};

TEST_F(NodeCheckerTest, ReportsTheProgramsResult) {
  const NodeCheckDone good =
      run(R"(echo '{"passed": true, "sentence": "nothing is wrong", "details": "8 cores"}')");
  EXPECT_TRUE(good.passed);
  EXPECT_EQ(good.sentence, "nothing is wrong");
  EXPECT_EQ(good.details, "8 cores");
  const NodeCheckDone bad = run(R"(echo '{"passed": false, "sentence": "core 3"}'; exit 1)");
  EXPECT_FALSE(bad.passed);
  EXPECT_EQ(bad.sentence, "core 3");
}

TEST_F(NodeCheckerTest, AProgramThatDoesNotAgreeWithItselfHasFailed) {
  EXPECT_FALSE(run(R"(echo '{"passed": true, "sentence": "good"}'; exit 1)").passed);
  EXPECT_FALSE(run(R"(echo '{"passed": "yes", "sentence": "good"}')").passed);
  EXPECT_FALSE(run("echo '[]'").passed);
  const NodeCheckDone killed = run("echo libfoo.so: no such file >&2; kill -9 $$");
  EXPECT_FALSE(killed.passed);
  EXPECT_EQ(killed.sentence,
            "its check ended with code 137 and without a result: libfoo.so: no such file");
}

TEST_F(NodeCheckerTest, AProgramThatHangsIsKilledAtItsDeadline) {
  const Instant began = monotonic_now();
  const NodeCheckDone late = run("sleep 100", std::chrono::milliseconds(300));
  EXPECT_FALSE(late.passed);
  EXPECT_NE(late.sentence.find("did not answer in time"), std::string::npos) << late.sentence;
  EXPECT_LT(monotonic_now() - began, std::chrono::seconds(30));
  EXPECT_GE(late.seconds, 0.3);
}

// A process in D state survives SIGKILL; one that has left its group does not receive it, either.
TEST_F(NodeCheckerTest, AnUnkillableProgramIsAbandoned) {
  const NodeCheckDone stuck = run(
      "exec python3 -c 'import os, time; os.setpgid(0, os.getpgid(os.getppid())); time.sleep(9)'",
      std::chrono::milliseconds(2'000));
  EXPECT_FALSE(stuck.passed);
  EXPECT_NE(stuck.sentence.find("hangs"), std::string::npos) << stuck.sentence;
  while (wait(nullptr) > 0) {
  }
}

TEST_F(NodeCheckerTest, TheFolderOfLocalCheckpointsIsNamedAndMade) {
  const NodeCheckDone done = run(R"(echo "{\"passed\": true, \"sentence\": \"$*\"}")");
  EXPECT_EQ(done.sentence,
            "check-node --json --work-dir " + folder_.path() + " --shm-dir " + folder_.file("shm"));
  EXPECT_TRUE(std::filesystem::is_directory(folder_.file("shm")));
}

TEST_F(NodeCheckerTest, AMissingProgramFailsAndNoProgramPasses) {
  const NodeCheckDone gone = run_node_check(
      {folder_.file("nothing"), folder_.path(), folder_.path(), std::chrono::seconds(5)});
  EXPECT_FALSE(gone.passed);
  EXPECT_NE(gone.sentence.find("nothing"), std::string::npos) << gone.sentence;
  const NodeCheckDone none =
      run_node_check({"", folder_.path(), folder_.path(), std::chrono::seconds(5)});
  EXPECT_TRUE(none.passed);
  EXPECT_NE(none.sentence.find("were not tested"), std::string::npos);
}

TEST_F(NodeCheckerTest, TheRealOnePassesHereAndFindsAFullDisk) {
  const NodeCheckDone good = run_real(folder_.path());
  EXPECT_TRUE(good.passed) << good.sentence;
  RecordProperty("seconds", std::to_string(good.seconds));
  EXPECT_FALSE(run_real(folder_.file("gone")).passed);
  if (geteuid() != 0) {
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::owner_read);
    EXPECT_FALSE(run_real(folder_.path()).passed) << "a folder that cannot be written to";
    std::filesystem::permissions(folder_.path(), std::filesystem::perms::owner_all);
  }
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const NodeCheckDone full = run_real(folder_.path());
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_FALSE(full.passed);
  EXPECT_NE(full.sentence.find("writing 4 MiB into"), std::string::npos) << full.sentence;
}

TEST_F(NodeCheckerTest, ADeepCheckReturnsItsMeasurements) {
  const DeepCheckDone done = run_deep(R"(echo "{\"passed\": true, \"sentence\": \"$*\",
    \"wrong\": true, \"kind\": \"1 x H200\", \"measurements\": [{\"name\": \"gemm\", \"value\": 2.5,
    \"unit\": \"TFLOP/s\"}, {\"name\": \"bad\", \"value\": \"x\"}, 7]}")");
  EXPECT_TRUE(done.result.passed) << done.result.sentence;
  EXPECT_EQ(done.result.sentence,
            "check-node --json --deep --work-dir " + folder_.path() + " --shm-dir " +
                folder_.file("shm") +
                " --gpus none --seconds 2 --storage-dir /data --group-node 1 --group-nodes 3 "
                "--group-id 9 --rendezvous 10.0.0.1:5 --bind-address 127.0.0.1");
  EXPECT_EQ(done.figures.kind, "1 x H200");
  EXPECT_TRUE(done.figures.wrong);
  ASSERT_EQ(done.figures.measurements.size(), 1U);
  EXPECT_EQ(done.figures.measurements[0].value, 2.5);
  EXPECT_FALSE(done.figures.stopped);
}

TEST_F(NodeCheckerTest, AStoppedDeepCheckIsNoFailure) {
  stop_ = true;
  const DeepCheckDone done = run_deep("sleep 1000");
  EXPECT_TRUE(done.figures.stopped);
  EXPECT_FALSE(done.result.passed);
  EXPECT_EQ(done.result.sentence, "ranks need the node");
}

// run_child() reports another error for a child that waits for a dead file system.
TEST_F(NodeCheckerTest, AStoppedDeepCheckThatCannotBeKilledIsNoFailure) {
  const absl::Status hangs = absl::DeadlineExceededError("muster-trainer hangs");
  const DeepCheckDone stopped = result_of_deep_check(hangs, true);
  EXPECT_TRUE(stopped.figures.stopped);
  EXPECT_EQ(stopped.result.sentence, "ranks need the node");
  const DeepCheckDone late = result_of_deep_check(hangs, false);
  EXPECT_FALSE(late.figures.stopped);
  EXPECT_EQ(late.result.sentence, "its check: muster-trainer hangs");
}

TEST_F(NodeCheckerTest, ADeepCheckOfTheRealProgramPasses) {
  const DeepCheckDone done =
      run_deep_check({MUSTER_TRAINER, folder_.path(), folder_.file("shm")},
                     {.seconds = 0.1, .deadline = std::chrono::seconds(300)}, stop_);
  EXPECT_TRUE(done.result.passed) << done.result.sentence;
  EXPECT_GE(done.figures.measurements.size(), 4U);
}

TEST_F(NodeCheckerTest, TheAnswerComesOnTheLoop) {
  boost::asio::io_context loop;
  auto work = boost::asio::make_work_guard(loop);
  std::vector<NodeCheckDone> answers;
  NodeChecker checker(loop, {"", folder_.path()}, [&](NodeCheckDone done) {
    answers.push_back(std::move(done));
    loop.stop();
  });
  checker.run();
  loop.run_for(std::chrono::seconds(30));
  EXPECT_EQ(answers.size(), 1U);
}

}  // namespace
}  // namespace muster::worker
