#include <initializer_list>

#include <gtest/gtest.h>

#include "coordinator/core/recovery/rank_faults.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

// The same exception of a program at the same place, on other ranks and nodes.
TEST(RestartPolicy, AnExceptionThatRepeatsEndsTheJobTheSecondTime) {
  const auto fault = [](int32_t rank, const char* worker, const char* detail, int64_t step) {
    const RankExit exit{Rank(rank), 1, 0, step, detail, ExitCause::kUnknown, true};
    Fault made = fault_of(exit, WorkerName(worker), 0);
    made.job_step = step;
    return made;
  };
  const char* empty = "ValueError: batch 7 is empty (job/train.py:31 step)";
  const auto decide = [](std::vector<Fault> faults) {
    Job job;
    job.spec.restarts_max = 9;
    job.spec.command = {"python3", "train.py"};
    job.faults = std::move(faults);
    return decide_restart(job);
  };
  EXPECT_TRUE(decide({fault(2, "n1", empty, 17)}).restart);
  const RestartDecision twice =
      decide({fault(2, "n1", empty, 17),
              fault(0, "n2", "ValueError: batch 9 is empty (job/train.py:31 step)", 16)});
  EXPECT_FALSE(twice.restart);
  EXPECT_EQ(
      twice.reason,
      "the same error twice in a row, on n1 and n2: ValueError at job/train.py:31 step, which "
      "a restart cannot change; rank 0 on n2 exited with code 1 after 16 steps: ValueError: "
      "batch 9 is empty (job/train.py:31 step)");
  const char* others[] = {
      "ValueError: batch 7 is empty (job/train.py:32 step)",
      "KeyError: 'x' (job/train.py:31 step)",
      "",
      "no traceback",
  };
  for (const char* other : others)
    EXPECT_TRUE(decide({fault(2, "n1", empty, 17), fault(2, "n1", other, 17)}).restart) << other;
  // The next attempt may find the network, the storage and the devices in order.
  for (const char* passing : {"ConnectionRefusedError: [Errno 111] (job/train.py:31 step)",
                              "FileNotFoundError: /data/x (job/train.py:31 step)",
                              "RuntimeError: CUDA error: unspecified (job/train.py:31 step)",
                              "RuntimeError: Connection closed by peer (job/train.py:31 step)"})
    EXPECT_TRUE(decide({fault(2, "n1", passing, 17), fault(2, "n1", passing, 18)}).restart)
        << passing;
  // A checkpoint in between is progress of the job.
  std::vector<Fault> apart = {fault(2, "n1", empty, 17), fault(2, "n1", empty, 40)};
  apart[0].checkpoint_step = 10;
  apart[1].checkpoint_step = 30;
  EXPECT_TRUE(decide(apart).restart);
  // So are more steps: the program may resume from checkpoints that it does not report.
  apart[1].checkpoint_step = 10;
  EXPECT_TRUE(decide(apart).restart);
  apart[1].job_step = 20;
  EXPECT_FALSE(decide(apart).restart);
  // The error of another revision shows nothing about this one.
  apart[1].revision = 2;
  EXPECT_TRUE(decide(apart).restart);
  apart[1].revision = 1;
  // Another node may be fit.
  apart[1].node_unfit = true;
  EXPECT_TRUE(decide(apart).restart);
}

Fault missing_file(const char* worker, int64_t job_step) {
  const RankExit exit{
      Rank(0), 1, 0, -1, "FileNotFoundError: /data/x (job/train.py:31 step)", ExitCause::kUnknown,
      true};
  Fault fault = fault_of(exit, WorkerName(worker), 0);
  fault.job_step = job_step;
  fault.node_unfit = true;
  return fault;
}

Job job_of_program(std::initializer_list<const char*> nodes) {
  Job job;
  job.spec.restarts_max = 3;
  job.spec.command = {"python3", "train.py"};
  job.spec.nodes = static_cast<int32_t>(nodes.size());
  for (const char* node : nodes)
    job.placement.push_back(
        {Rank(static_cast<int32_t>(std::ssize(job.placement))), WorkerName(node), 0, {}});
  return job;
}

TEST(RestartPolicy, TwoNodesWithoutAMountDoNotEndALargeJob) {
  Job job = job_of_program({"n2", "n3", "n4"});
  job.previous_nodes = {WorkerName("n1"), WorkerName("n3"), WorkerName("n4")};
  job.faults = {missing_file("n1", -1), missing_file("n2", -1)};
  EXPECT_TRUE(decide_restart(job).restart) << "the attempts have nodes in common";
  job.faults.push_back(missing_file("n3", -1));
  EXPECT_TRUE(decide_restart(job).restart);
  job.faults.push_back(missing_file("n4", -1));
  EXPECT_FALSE(decide_restart(job).restart) << "four nodes lack it";
  EXPECT_TRUE(decide_restart(job).is_futile);
  job = job_of_program({"n2"});
  job.previous_nodes = {WorkerName("n1")};
  job.faults = {missing_file("n1", -1), missing_file("n2", -1)};
  EXPECT_FALSE(decide_restart(job).restart) << "no node of the first attempt is left";
}

// An outage of storage ends no job that has trained, and is waited for.
TEST(RestartPolicy, AJobThatHasTrainedWaitsForMissingFiles) {
  Job job = job_of_program({"n1"});
  for (int i = 0; i < 12; ++i) {
    job.faults.push_back(missing_file(i % 2 == 0 ? "n1" : "n2", 500));
    job.faults.back().node_unfit = false;
    const RestartDecision decision = decide_restart(job);
    ASSERT_TRUE(decision.restart) << i << ": " << decision.reason;
    EXPECT_GE(decision.delay, kMendedDelay) << i;
    count_restart(job, decision);
  }
  EXPECT_EQ(cause_of(job.faults.back()), Cause::kStorageAway);
  EXPECT_EQ(blame_of_node(job.faults.back()), NodeBlame::kNothing);
  job.restarts_used[Cause::kStorageAway].count = 30;
  EXPECT_FALSE(decide_restart(job).restart);
  EXPECT_FALSE(decide_restart(job).is_futile) << "the next allocation may find it";
}

TEST(RestartPolicy, OnlyTheJobsOwnFaultsAreFutile) {
  for (const bool is_own : {true, false}) {
    Job job = job_of_program({"n1"});
    Fault fault =
        fault_of({Rank(0), -1, 11, -1, "", ExitCause::kUnknown, true}, WorkerName("n1"), 0);
    if (!is_own) fault.kind = IncidentKind::kWorkerLost;
    job.faults = {fault};
    job.restarts_used[cause_of(fault)] = {1000, -1, -1, {}};
    const RestartDecision decision = decide_restart(job);
    EXPECT_FALSE(decision.restart);
    EXPECT_EQ(decision.is_futile, is_own);
  }
}

}  // namespace
}  // namespace muster::coordinator
