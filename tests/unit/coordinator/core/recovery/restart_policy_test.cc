#include "coordinator/core/recovery/restart_policy.h"

#include <string>

#include <gtest/gtest.h>

#include "coordinator/core/recovery/rank_faults.h"

namespace muster::coordinator {
namespace {

Job job_with_fault(int32_t exit_code, int32_t signal, int32_t restarts, int32_t restarts_max) {
  Job job;
  job.attempt = Attempt(static_cast<uint32_t>(restarts + 1));
  job.restarts = restarts;
  job.spec.restarts_max = restarts_max;
  job.faults.push_back(fault_of({Rank(3), exit_code, signal, 7, ""}, WorkerName("n1"), 0));
  if (restarts > 0) job.restarts_used[cause_of(job.faults.back())].count = restarts;
  return job;
}

TEST(RestartPolicy, BackoffGrowsAndIsBounded) {
  EXPECT_EQ(backoff_before_restart(1), Duration::zero());
  EXPECT_EQ(backoff_before_restart(2), kBackoffFirst);
  EXPECT_EQ(backoff_before_restart(4), 4 * kBackoffFirst);
  for (int32_t n = 1; n < 100'000; n += 97) EXPECT_LE(backoff_before_restart(n), kBackoffMax);
  EXPECT_EQ(backoff_before_restart(100'000), kBackoffMax);
}

TEST(RestartPolicy, OnlyWhatARetryCanHelpIsRetried) {
  EXPECT_TRUE(decide_restart(job_with_fault(-1, 9, 0, 1)).restart);
  EXPECT_TRUE(decide_restart(job_with_fault(1, 0, 0, 1)).restart);
  EXPECT_FALSE(decide_restart(job_with_fault(-1, 9, 1, 1)).restart);
  EXPECT_FALSE(decide_restart(job_with_fault(2, 0, 0, 9)).restart);
  EXPECT_FALSE(decide_restart(job_with_fault(3, 0, 0, 9)).restart);
}

// The trainer's exit codes have no meaning for other programs.
TEST(RestartPolicy, AProgramsCodesAreFaultsLikeAnyOther) {
  for (const int32_t code : {1, 2, 3, 4, 75, 76, 255}) {
    const RankExit exit{Rank(3), code, 0, 7, "", ExitCause::kUnknown, true};
    EXPECT_FALSE(is_victim(exit)) << code;
    EXPECT_FALSE(is_preempted(exit)) << code;
    Job job = job_with_fault(1, 0, 0, 1);
    job.faults = {fault_of(exit, WorkerName("n1"), 0)};
    EXPECT_EQ(job.faults[0].message,
              "rank 3 on n1 exited with code " + std::to_string(code) + " after 7 steps");
    EXPECT_TRUE(decide_restart(job).restart) << code;
    EXPECT_TRUE(decide_restart(job).counts) << code;
  }
  for (const int32_t code : {126, 127}) {
    Job job = job_with_fault(1, 0, 0, 9);
    job.faults[0].exit_code = code;
    EXPECT_TRUE(decide_restart(job).restart) << "the code has no meaning for the built-in trainer";
    job.faults[0].of_program = true;
    EXPECT_FALSE(decide_restart(job).restart) << code;
  }
}

// Fields of a fault of a program that ends with 126 or 127.
struct NoProgram {
  std::string_view name;
  int64_t last_step = -1;
  int64_t job_step = -1;
  int64_t checkpoint_step = -1;
  Duration productive{};
  bool node_unfit = false;
  bool restart = false;
};

TEST(RestartPolicy, MissingProgramsAreNeverRetried) {
  const NoProgram table[] = {
      {.name = "at its start"},
      {.name = "after a second", .productive = std::chrono::seconds(1)},
      {.name = "after a minute", .productive = std::chrono::minutes(1)},
      {.name = "after a week", .productive = std::chrono::hours(24 * 7)},
      {.name = "after a step", .last_step = 1, .job_step = 1},
      {.name = "after a checkpoint", .last_step = 9, .job_step = 9, .checkpoint_step = 5},
      {.name = "at the start of a job that trained", .job_step = 9, .checkpoint_step = 5},
      // Not a retry: the program exists on the nodes where the job trained.
      {.name = "on an unfit node", .job_step = 9, .node_unfit = true, .restart = true},
  };
  for (const int32_t code : {126, 127}) {
    for (const NoProgram& one : table) {
      SCOPED_TRACE(one.name);
      Job job = job_with_fault(code, 0, 0, 9);
      Fault& fault = job.faults[0];
      fault.of_program = true;
      fault.last_step = one.last_step;
      fault.job_step = one.job_step;
      fault.checkpoint_step = one.checkpoint_step;
      fault.productive = one.productive;
      fault.node_unfit = one.node_unfit;
      const RestartDecision decision = decide_restart(job);
      EXPECT_EQ(decision.restart, one.restart) << decision.reason;
      if (one.restart) continue;
      EXPECT_NE(decision.reason.find("is missing or cannot be executed is not retried"),
                std::string::npos)
          << decision.reason;
    }
  }
}

TEST(RestartPolicy, PreemptionCostsNoRestartButIsBounded) {
  Job job = job_with_fault(75, 0, 0, 0);
  EXPECT_TRUE(decide_restart(job).restart);
  EXPECT_FALSE(decide_restart(job).counts);
  EXPECT_EQ(decide_restart(job).delay, kPreemptedDelay) << "its worker may be about to shut down";
  job.faults.back().rank = Rank(-1);
  EXPECT_EQ(decide_restart(job).delay, Duration::zero()) << "the worker has reported its shutdown";
  job.restarts_used[Cause::kPreempted].count = kPreemptionsMax;
  EXPECT_FALSE(decide_restart(job).restart);
  job.faults.back().checkpoint_step = 5;
  EXPECT_TRUE(decide_restart(job).restart) << "a newer checkpoint resets the count";
}

// Returns a job whose newest fault records this progress of the job.
Job job_after(IncidentKind kind, int64_t checkpoint_step, int64_t job_step) {
  Job job = job_with_fault(-1, 11, 0, 2);
  Fault& fault = job.faults.back();
  fault.kind = kind;
  fault.checkpoint_step = checkpoint_step;
  fault.job_step = job_step;
  return job;
}

TEST(RestartPolicy, EachCauseHasABudgetAndLostWorkersALargerOne) {
  Job job = job_after(IncidentKind::kHang, 10, 12);
  job.restarts_used[Cause::kRankDied] = {2, 10, 12};
  EXPECT_TRUE(decide_restart(job).restart);
  EXPECT_EQ(decide_restart(job).delay, backoff_before_restart(3))
      << "the back-off counts the restarts of all causes";
  job.restarts_used[Cause::kHang] = {2, 10, 12};
  EXPECT_FALSE(decide_restart(job).restart);
  EXPECT_NE(decide_restart(job).reason.find(
                "all 2 restarts for \"hang\" are used up and made no progress"),
            std::string::npos);
  job.faults.back().kind = IncidentKind::kWorkerLost;
  job.restarts_used[Cause::kWorkerLost] = {19, 10, 12};
  EXPECT_TRUE(decide_restart(job).restart);
  job.restarts_used[Cause::kWorkerLost] = {20, 10, 12};
  EXPECT_FALSE(decide_restart(job).restart);
  job.spec.restarts_max = 0;
  EXPECT_NE(decide_restart(job).reason.find("no restarts were allowed"), std::string::npos);
}

TEST(RestartPolicy, AGpuFaultIsItsNodesAlone) {
  RankExit exit;
  exit.rank = Rank(1);
  exit.exit_code = to_int(ExitCode::kPeerLost);
  EXPECT_TRUE(is_victim(exit));
  exit.cause = ExitCause::kGpuFault;
  exit.detail = "GPU 1 is lost (Xid 79: fallen off the bus)";
  EXPECT_FALSE(is_victim(exit)) << "the rank lost its GPU first";
  exit.exit_code = -1;
  exit.signal = 9;
  EXPECT_NE(fault_of(exit, WorkerName("n1"), 0).message.find(": GPU 1 is lost"), std::string::npos);
  Job job = job_after(IncidentKind::kGpuFault, 10, 12);
  job.restarts_used[Cause::kGpuFault] = {19, 10, 12};
  EXPECT_TRUE(decide_restart(job).restart);
  job.faults.back().signal = 0;
  job.faults.back().exit_code = to_int(ExitCode::kPeerLost);
  job.faults.back().worker = WorkerName("n1");
  EXPECT_EQ(blame_of_node(job.faults.back()), NodeBlame::kAtOnce);
  job.restarts_used[Cause::kGpuFault] = {20, 10, 12};
  EXPECT_FALSE(decide_restart(job).restart);
}

TEST(RestartPolicy, AFullDiskIsWaitedFor) {
  Job job = job_after(IncidentKind::kDiskFull, 10, 12);
  job.faults.assign(5, job.faults.back());
  for (Fault& fault : job.faults) fault.last_step = 12;
  EXPECT_TRUE(decide_restart(job).restart) << "a repeated full disk does not count against the job";
  EXPECT_EQ(decide_restart(job).delay, kMendedDelay);
  job.restarts_used[Cause::kDiskFull] = {2, 10, 12};
  EXPECT_EQ(decide_restart(job).delay, 4 * kMendedDelay);
  job.restarts_used[Cause::kDiskFull] = {19, 10, 12};
  EXPECT_EQ(decide_restart(job).delay, kMendedDelayMax);
  job.restarts_used[Cause::kDiskFull] = {20, 10, 12};
  EXPECT_FALSE(decide_restart(job).restart);
}

TEST(RestartPolicy, StorageThatIsAwayIsWaitedFor) {
  Job job = job_with_fault(to_int(ExitCode::kStorageAway), 0, 0, 2);
  job.faults.back().job_step = 12;
  job.faults.assign(5, job.faults.back());
  EXPECT_EQ(cause_of(job.faults.back()), Cause::kStorageAway);
  EXPECT_TRUE(decide_restart(job).restart) << "a repeated outage does not count against the job";
  EXPECT_EQ(decide_restart(job).delay, kMendedDelay);
  EXPECT_EQ(blame_of_node(job.faults.back()), NodeBlame::kNothing);
  job.restarts_used[Cause::kStorageAway] = {19, 0, 12};
  EXPECT_EQ(decide_restart(job).delay, kMendedDelayMax);
  job.restarts_used[Cause::kStorageAway] = {20, 0, 12};
  EXPECT_FALSE(decide_restart(job).restart);
  job.faults.back().of_program = true;
  EXPECT_EQ(cause_of(job.faults.back()), Cause::kRankDied) << "the code has no meaning there";
}

TEST(RestartPolicy, DurableProgressGivesTheBudgetBack) {
  Job job = job_after(IncidentKind::kRankDied, 20, 25);
  job.restarts_used = {{Cause::kRankDied, {2, 10, 12}}, {Cause::kHang, {2, 10, 12}}};
  const RestartDecision decision = decide_restart(job);
  EXPECT_TRUE(decision.restart);
  EXPECT_EQ(decision.delay, Duration::zero());
  count_restart(job, decision);
  EXPECT_EQ(job.restarts_used, (std::map<Cause, RestartsUsed>{{Cause::kRankDied, {1, 20, 25}}}));
  job = job_after(IncidentKind::kRankDied, 10, 1'000'000);
  job.restarts_used = {{Cause::kRankDied, {2, 10, 12}}};
  EXPECT_FALSE(decide_restart(job).restart) << "steps after a checkpoint are lost again";
  job = job_after(IncidentKind::kRankDied, -1, 12 + kStepsOfProgress);
  job.restarts_used = {{Cause::kRankDied, {2, -1, 12}}};
  EXPECT_TRUE(decide_restart(job).restart) << "the job saves no checkpoints";
  job.faults.back().job_step -= 1;
  EXPECT_FALSE(decide_restart(job).restart);
}

// The 54 days of Llama 3: 419 interruptions, with checkpoints in between.
TEST(RestartPolicy, AJobOfWeeksLivesThroughHundredsOfInterruptions) {
  Job job = job_after(IncidentKind::kRankDied, -1, -1);
  job.spec.restarts_max = 1;
  for (int64_t i = 1; i <= 419; ++i) {
    Fault fault = job.faults.back();
    fault.kind = i % 3 == 0 ? IncidentKind::kWorkerLost : IncidentKind::kRankDied;
    fault.checkpoint_step = 100 * i;
    fault.last_step = fault.job_step = 100 * i + 50;
    job.faults = {fault};
    const RestartDecision decision = decide_restart(job);
    ASSERT_TRUE(decision.restart) << decision.reason;
    EXPECT_EQ(decision.delay, Duration::zero());
    count_restart(job, decision);
  }
  EXPECT_EQ(job.restarts, 419);
}

TEST(RestartPolicy, AFaultThatRepeatsEndsTheJobTheThirdTime) {
  Job job = job_with_fault(1, 0, 0, 9);
  EXPECT_EQ(repeats_of(job), 1);
  job.faults.push_back(fault_of({Rank(3), 1, 0, 7, ""}, WorkerName("n2"), 0));
  EXPECT_EQ(repeats_of(job), 2);
  EXPECT_TRUE(decide_restart(job).restart);
  EXPECT_NE(decide_restart(job).reason.find("the same fault at step 7 again, and away from n2"),
            std::string::npos);
  job.faults.push_back(fault_of({Rank(3), 1, 0, 7, ""}, WorkerName("n1"), 0));
  EXPECT_FALSE(decide_restart(job).restart);
  EXPECT_EQ(decide_restart(job).reason,
            "the same fault at step 7 three times in a row, on n1 and n2: "
            "rank 3 on n1 exited with code 1 after 7 steps");
  job.faults.back().last_step = 8;
  EXPECT_EQ(repeats_of(job), 1);
  for (Fault& fault : job.faults) fault.last_step = -1;
  EXPECT_EQ(repeats_of(job), 1) << "before the first step nothing repeats";
}

TEST(RestartPolicy, AFaultJudgesItsNode) {
  const auto blame = [](int32_t code, int32_t signal, int64_t step) {
    return blame_of_node(fault_of({Rank(0), code, signal, step, ""}, WorkerName("n1"), 0));
  };
  EXPECT_EQ(blame(-1, 9, -1), NodeBlame::kCounts);
  EXPECT_EQ(blame(1, 0, 7), NodeBlame::kCounts);
  EXPECT_EQ(blame(1, 0, -1), NodeBlame::kNothing) << "a script with a mistake fails on every node";
  EXPECT_EQ(blame(2, 0, 7), NodeBlame::kNothing);
  EXPECT_EQ(blame(3, 0, 7), NodeBlame::kNothing);
  EXPECT_EQ(blame(75, 0, 7), NodeBlame::kNothing);
  EXPECT_EQ(blame(76, 0, 7), NodeBlame::kNothing);
}

TEST(RestartPolicy, NamesTheEndOfARank) {
  EXPECT_EQ(fault_of({Rank(2), -1, 9, 17, ""}, WorkerName("node7"), 0).message,
            "rank 2 on node7 was killed by signal 9 (SIGKILL) after 17 steps");
  EXPECT_EQ(fault_of({Rank(2), -1, 15, 17, "completed step: 16"}, WorkerName("node7"), 0).message,
            "rank 2 on node7 was killed by signal 15 (SIGTERM) after 17 steps");
  EXPECT_EQ(fault_of({Rank(2), -1, 6, 1, "check failed: a == b"}, WorkerName("n"), 0).message,
            "rank 2 on n was killed by signal 6 (SIGABRT) after 1 step: check failed: a == b");
  EXPECT_EQ(fault_of({Rank(0), 2, 0, -1, "no shard"}, WorkerName("node7"), 0).message,
            "rank 0 on node7 exited with code 2 (bad input) before its first step: no shard");
  EXPECT_EQ(exit_code_of(job_with_fault(-1, 9, 0, 0).faults[0]), 137);
  EXPECT_EQ(exit_code_of(job_with_fault(3, 0, 0, 0).faults[0]), 3);
  EXPECT_EQ(exit_code_of(Fault{}), 1);
}

// The kernel's reason, which the worker has found, is on the line of the rank.
TEST(RestartPolicy, ALineOfAKilledRankHasItsCause) {
  struct {
    int32_t exit_code;
    int32_t signal;
    const char* detail;
    ExitCause cause;
    const char* line;
  } const cases[] = {
      {-1, 9, "out of memory (cgroup limit 300 MiB)", ExitCause::kOutOfMemory,
       "was killed by signal 9 (SIGKILL) after 17 steps: out of memory (cgroup limit 300 MiB)"},
      {-1, 9, "out of memory (no cgroup limit: the machine's memory is used up)",
       ExitCause::kOutOfMemory,
       "was killed by signal 9 (SIGKILL) after 17 steps: out of memory (no cgroup limit: the "
       "machine's memory is used up)"},
      {137, 0, "out of memory (cgroup limit 64 MiB)", ExitCause::kOutOfMemory,
       "exited with code 137 after 17 steps: out of memory (cgroup limit 64 MiB)"},
      {-1, 7, "GPU 3 was lost", ExitCause::kGpuFault,
       "was killed by signal 7 (SIGBUS) after 17 steps: GPU 3 was lost"},
      {-1, 9, "", ExitCause::kUnknown, "was killed by signal 9 (SIGKILL) after 17 steps"},
      {-1, 9, "the limit of CPU time is used up (ulimit -t): 5 s", ExitCause::kUnknown,
       "was killed by signal 9 (SIGKILL) after 17 steps: the limit of CPU time is used up (ulimit "
       "-t): 5 s"},
      {-1, 24, "the limit of CPU time is used up (ulimit -t); line", ExitCause::kUnknown,
       "was killed by signal 24 (SIGXCPU) after 17 steps: the limit of CPU time is used up (ulimit "
       "-t); line"},
      {-1, 25, "a file has reached the limit of sizes (ulimit -f)", ExitCause::kUnknown,
       "was killed by signal 25 (SIGXFSZ) after 17 steps: a file has reached the limit of sizes "
       "(ulimit -f)"},
      {-1, 7, "/dev/shm is full", ExitCause::kUnknown,
       "was killed by signal 7 (SIGBUS) after 17 steps: /dev/shm is full"},
      {-1, 15, "a line of its output", ExitCause::kUnknown,
       "was killed by signal 15 (SIGTERM) after 17 steps"},
      {-1, 11, "Fatal Python error: Segmentation fault (job/train.py:12 read)", ExitCause::kUnknown,
       "was killed by signal 11 (SIGSEGV) after 17 steps: Fatal Python error: Segmentation fault "
       "(job/train.py:12 read)"},
      {1, 0, "line; the kernel killed a process of its control group for memory",
       ExitCause::kUnknown,
       "exited with code 1 after 17 steps: line; the kernel killed a process of its control group "
       "for memory"},
      {-1, 9, "", ExitCause::kOutOfMemory, "was killed by signal 9 (SIGKILL) after 17 steps"},
  };
  for (const auto& one : cases) {
    const RankExit exit{Rank(2), one.exit_code, one.signal, 17, one.detail, one.cause, true};
    EXPECT_EQ(fault_of(exit, WorkerName("n"), 0).message, std::string("rank 2 on n ") + one.line);
  }
}

TEST(RestartPolicy, EverySignalHasItsName) {
  EXPECT_EQ(fault_of({Rank(0), -1, 3, 1, ""}, WorkerName("n"), 0).message,
            "rank 0 on n was killed by signal 3 (SIGQUIT) after 1 step");
  EXPECT_EQ(fault_of({Rank(0), -1, 63, 1, ""}, WorkerName("n"), 0).message,
            "rank 0 on n was killed by signal 63 after 1 step");
}

// Returns a job of three ranks on node0; the ranks in `exits` have ended.
Job job_of_victims(const std::vector<RankExit>& exits) {
  Job job;
  job.ranks.resize(3);
  for (int32_t rank = 0; rank < 3; ++rank) {
    RankPlacement& placement = job.placement.emplace_back();
    placement.rank = Rank(rank);
    placement.worker = WorkerName("node0");
  }
  for (const RankExit& exit : exits) {
    job.ranks[static_cast<size_t>(exit.rank.value())].life = RankState::Life::kExited;
    job.exits.push_back(exit);
  }
  return job;
}

TEST(RestartPolicy, ARankThatLeavesTooEarlyIsBlamedAndASilentOneIsReported) {
  const RankExit first{Rank(0), 76, 0, 5, ""}, second{Rank(1), 76, 0, 5, ""};
  const Fault early =
      fault_without_culprit(job_of_victims({{Rank(2), 0, 0, 5, ""}, first, second}), 7);
  EXPECT_EQ(early.rank, Rank(2));
  EXPECT_EQ(early.worker, WorkerName("node0"));
  EXPECT_EQ(early.message,
            "rank 2 on node0 exited with code 0 after 5 steps, before the others were through; "
            "rank 0 lost a peer");
  const Fault silent = fault_without_culprit(job_of_victims({first, second}), 7);
  EXPECT_EQ(silent.rank, Rank(2));
  EXPECT_EQ(
      silent.message,
      "rank 0 lost a peer, but no rank was reported dead; only rank 2 has not reported a loss");
  const Fault two = fault_without_culprit(job_of_victims({first}), 7);
  EXPECT_LT(two.rank.value(), 0);
  EXPECT_EQ(
      two.message,
      "rank 0 lost a peer, but no rank was reported dead; ranks 1-2 have not reported a loss");
  EXPECT_EQ(two.exit_code, 76);
  const RankExit detailed{Rank(0), 76, 0, 5, "these ranks have no NCCL communicator: 1"};
  EXPECT_EQ(
      fault_without_culprit(job_of_victims({detailed, second}), 7).message,
      "rank 0 lost a peer, but no rank was reported dead; only rank 2 has not reported a loss; "
      "rank 0 reported: these ranks have no NCCL communicator: 1");
}

}  // namespace
}  // namespace muster::coordinator
