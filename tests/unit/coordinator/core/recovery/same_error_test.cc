#include <gtest/gtest.h>

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
  // Another node may be fit.
  apart[1].node_unfit = true;
  EXPECT_TRUE(decide(apart).restart);
}

}  // namespace
}  // namespace muster::coordinator
