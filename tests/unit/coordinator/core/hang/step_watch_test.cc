// Steps compared with the plan.
#include "coordinator/core/hang/step_watch.h"

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/coordinator/core/hang/step_watch_fixture.h"

namespace muster::coordinator {
namespace {

TEST(StepWatchOfPlan, NamesThePartThatDiffers) {
  const std::pair<StepPart, StepOf> cases[] = {
      {StepPart::kComputation, {.seconds = 1.4}},
      {StepPart::kCommunication, {.seconds = 1.4, .communication = 0.6}},
      {StepPart::kData, {.seconds = 1.4, .data = 0.4}},
      {StepPart::kCheckpoint, {.stall = 0.5}},
  };
  for (const auto& [part, slow] : cases) {
    Steps job;
    job.run(400);
    EXPECT_TRUE(job.findings.empty());
    job.run(400, slow);
    ASSERT_EQ(job.findings.size(), 1U) << kStepPartNames[static_cast<size_t>(part)];
    EXPECT_TRUE(job.findings[0].is_slower);
    EXPECT_EQ(job.findings[0].part, part);
    EXPECT_NEAR(job.findings[0].reference_seconds, 1.1, 1e-9);
    EXPECT_GT(job.findings[0].seconds, 1.15 * 1.1);
    job.run(700);
    ASSERT_EQ(job.findings.size(), 2U) << kStepPartNames[static_cast<size_t>(part)];
    EXPECT_FALSE(job.findings[1].is_slower);
    EXPECT_LE(job.findings[1].seconds, 1.1 * 1.1);
  }
}

TEST(StepWatchOfPlan, ChangesItsMindOutsideTheHysteresisOnly) {
  Steps job;
  for (int i = 0; i < 5; ++i) {
    job.run(300, {.seconds = 1.1});
    job.run(300, {.seconds = 1.14});
  }
  EXPECT_TRUE(job.findings.empty());
  job.run(300, {.seconds = 1.3});
  ASSERT_EQ(job.findings.size(), 1U);
  for (int i = 0; i < 5; ++i) job.run(300, {.seconds = i % 2 == 0 ? 1.14 : 1.3});
  EXPECT_EQ(job.findings.size(), 1U);
}

TEST(StepWatchOfPlan, NeedsMoreThanHalfOfAWholeWindow) {
  Steps job;
  job.run(250, {.seconds = 1.1});  // 300 s with the stalls, without the first steps
  job.run(70, {.seconds = 1.6});   // 119 s
  job.run(250);
  EXPECT_TRUE(job.findings.empty());
  Steps slow;
  slow.run(3);
  slow.run(140, {.seconds = 2});  // 294 s
  EXPECT_TRUE(slow.findings.empty());
  slow.run(10, {.seconds = 2});
  EXPECT_EQ(slow.findings.size(), 1U);
}

// A stall of 60 s each 3600 steps is 1.7% of the time, and most of the window in which it lies.
TEST(StepWatchOfPlan, AStallCountsForItsWholePeriod) {
  Steps job;
  for (int i = 0; i < 3; ++i) {
    job.run(3599, {.stall = 0});
    job.run(1, {.stall = 60});
  }
  EXPECT_TRUE(job.findings.empty());
}

// The first pages may be those of a coordinator that was restarted soon before a save.
TEST(StepWatchOfPlan, AStallDoesNotCountForAPartOfItsPeriod) {
  Steps job;
  job.run(100, {.stall = 0});
  job.run(1, {.stall = 60});
  job.run(3599, {.stall = 0});
  job.run(1, {.stall = 60});
  EXPECT_TRUE(job.findings.empty());
}

// The window has only the time of steps.
TEST(StepWatchOfPlan, ALongInterruptionDoesNotMakeAFewSlowStepsAWindow) {
  Steps job;
  job.run(1000);
  job.run(12, {.seconds = 2});
  job.page.phase = Phase::kEval;
  job.now += 2 * kWindow;
  job.report();
  job.page.phase = Phase::kStep;
  job.report();
  job.run(100);
  EXPECT_TRUE(job.findings.empty());
}

TEST(StepWatchOfPlan, FewStepsAreEnoughIfTheyAreLong) {
  Job planned = planned_job();
  planned.spec.planned_step_us = 200'000'000;
  Steps job(planned);
  job.run(3, {.seconds = 300});
  job.run(4, {.seconds = 300});
  EXPECT_TRUE(job.findings.empty());
  job.run(1, {.seconds = 300});
  EXPECT_EQ(job.findings.size(), 1U);
}

// The plan describes none of these.
TEST(StepWatchOfPlan, DoesNotCompareWarmUpsEvaluationsSavesAndSmallerJobs) {
  Steps warm_up;
  for (int i = 0; i < 3; ++i) warm_up.run(1, {.seconds = 1000});
  warm_up.run(400);
  EXPECT_TRUE(warm_up.findings.empty());

  for (const Phase phase : {Phase::kEval, Phase::kCheckpointSave, Phase::kCompile, Phase::kLoad}) {
    Steps job;
    job.run(400);
    for (int i = 0; i < 100; ++i) {  // each page shows a step that ended beside the phase
      job.page.phase = phase;
      job.run(1, {.seconds = 10});
      job.page.phase = Phase::kStep;
      job.report();
      job.run(5);
    }
    EXPECT_TRUE(job.findings.empty());
  }

  Steps saving;
  saving.run(400);
  saving.page.checkpoints.saving_mib = 100;
  saving.run(1000, {.seconds = 3});
  EXPECT_TRUE(saving.findings.empty());

  for (const Job& unplanned : {planned_job(1), Job()}) {
    Steps job(unplanned);
    job.run(1000, {.seconds = 3});
    EXPECT_TRUE(job.findings.empty());
  }
}

TEST(StepWatchOfPlan, IgnoresImpossiblePages) {
  Steps job;
  job.run(400);
  const RankProgress before = job.page;
  job.page.collective_wait_seconds = std::numeric_limits<double>::quiet_NaN();
  job.report();
  job.page = before;
  job.page.step_times = {};  // another process
  job.page.step_times.counts[0] = 5;
  job.report();
  job.page = before;
  job.run(400);
  EXPECT_TRUE(job.findings.empty());
}

}  // namespace
}  // namespace muster::coordinator
