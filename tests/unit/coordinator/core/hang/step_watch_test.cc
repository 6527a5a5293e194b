#include "coordinator/core/hang/step_watch.h"

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

constexpr Duration kWindow = std::chrono::minutes(5);

Job planned_job(int32_t placed = 2) {
  Job job;
  job.spec.nodes = 2;
  job.spec.planned_step_us = 1'000'000;
  job.spec.planned_communication_us = 200'000;
  job.spec.planned_checkpoint_us = 100'000;
  for (int32_t rank = 0; rank < placed; ++rank) job.placement.emplace_back().rank = Rank(rank);
  return job;
}

// The seconds of one step; `stall` is beside it.
struct StepOf {
  double seconds = 1;
  double communication = 0.2;
  double data = 0;
  double stall = 0.1;
  double tokens = 0;
};

// Steps of rank 0, with a page after each.
class Steps {
 public:
  explicit Steps(const Job& job = planned_job()) : watch(job, kWindow) {
    page.phase = Phase::kStep;
  }

  void run(int steps, StepOf step = {}) {
    for (int i = 0; i < steps; ++i) {
      page.step_times.add(step.seconds);
      page.step_seconds = step.seconds;
      page.tokens_per_second = step.tokens / step.seconds;
      page.collective_wait_seconds += step.communication;
      page.data_wait_seconds += step.data;
      page.checkpoints.stall_seconds += step.stall;
      if (step.stall > 0) ++page.checkpoints.saved;
      now += std::chrono::duration_cast<Duration>(
          std::chrono::duration<double>(step.seconds + step.stall));
      report();
    }
  }
  void report() {
    const StepWatch::Findings found = watch.observe(page, now);
    if (found.plan) findings.push_back(*found.plan);
    if (found.history) history.push_back(*found.history);
    windows += found.adds_to_history ? 1 : 0;
  }

  StepWatch watch;
  RankProgress page;
  Instant now{};
  int windows = 0;                    // in the history
  std::vector<StepFinding> findings;  // against the plan
  std::vector<StepFinding> history;
};

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

Job unplanned_job() {
  Job job = planned_job();
  job.spec.planned_step_us = 0;
  return job;
}

// The hours of a day with the default window, in steps of about a second.
constexpr int kHourOfSteps = 3600;

TEST(StepWatchOfHistory, NamesThePartThatBecameSlower) {
  const std::pair<StepPart, StepOf> cases[] = {
      {StepPart::kComputation, {.seconds = 1.3}},
      {StepPart::kCommunication, {.seconds = 1.3, .communication = 0.5}},
      {StepPart::kData, {.seconds = 1.3, .data = 0.3}},
      {StepPart::kCheckpoint, {.stall = 0.4}},
  };
  for (const auto& [part, slow] : cases) {
    Steps job(unplanned_job());
    job.run(2 * kHourOfSteps);
    EXPECT_EQ(job.windows, 12);
    job.run(800, slow);
    ASSERT_EQ(job.history.size(), 1U) << kStepPartNames[static_cast<size_t>(part)];
    EXPECT_TRUE(job.history[0].is_slower);
    EXPECT_TRUE(job.history[0].part_is_known);
    EXPECT_EQ(job.history[0].part, part);
    EXPECT_NEAR(job.history[0].excess_seconds, 0.3, 0.01);
    EXPECT_NEAR(job.history[0].reference_seconds, 1.1, 1e-9);
    job.run(800);
    ASSERT_EQ(job.history.size(), 2U);
    EXPECT_FALSE(job.history[1].is_slower);
    EXPECT_TRUE(job.findings.empty());
  }
}

TEST(StepWatchOfHistory, ComparesJobsOnFewerNodesAndOfOneRank) {
  for (const int32_t placed : {0, 1}) {
    Steps job(planned_job(placed));
    job.run(kHourOfSteps);
    job.run(800, {.seconds = 1.4});
    ASSERT_EQ(job.history.size(), 1U);
    EXPECT_TRUE(job.findings.empty());
  }
}

TEST(StepWatchOfHistory, AJobWithoutWaitsHasNoPart) {
  Steps job(unplanned_job());
  job.run(kHourOfSteps, {.communication = 0, .stall = 0});
  job.run(800, {.seconds = 1.4, .communication = 0, .stall = 0});
  ASSERT_EQ(job.history.size(), 1U);
  EXPECT_FALSE(job.history[0].part_is_known);
}

TEST(StepWatchOfHistory, NeedsThreeWindowsAndThenASlowWholeWindow) {
  Steps young(unplanned_job());
  young.run(300);  // one window
  young.run(kHourOfSteps, {.seconds = 1.4});
  EXPECT_TRUE(young.history.empty());

  Steps job(unplanned_job());
  job.run(950);  // three windows
  job.run(300, {.seconds = 1.4});
  EXPECT_TRUE(job.history.empty());
  job.run(200, {.seconds = 1.4});
  EXPECT_EQ(job.history.size(), 1U);
}

// The slow steps must not become the reference.
TEST(StepWatchOfHistory, StaysOpenWhileTheJobIsSlow) {
  Steps job(unplanned_job());
  job.run(950);
  job.run(10 * kHourOfSteps, {.seconds = 1.4});
  EXPECT_EQ(job.history.size(), 1U);
  EXPECT_EQ(job.windows, 3);
  for (int i = 0; i < 10; ++i) job.run(500, {.seconds = i % 2 == 0 ? 1.15 : 1.3});
  EXPECT_EQ(job.history.size(), 1U);
}

TEST(StepWatchOfHistory, ThePlanCoversARegressionOnlyOfAJobThatWasAsPlanned) {
  Steps planned;
  planned.run(kHourOfSteps);
  planned.run(kHourOfSteps, {.seconds = 1.5});
  EXPECT_EQ(planned.findings.size(), 1U);
  EXPECT_TRUE(planned.history.empty());

  Steps optimistic;
  optimistic.run(kHourOfSteps, {.seconds = 1.5});
  EXPECT_EQ(optimistic.findings.size(), 1U);
  optimistic.run(kHourOfSteps, {.seconds = 2});
  EXPECT_EQ(optimistic.findings.size(), 1U);
  ASSERT_EQ(optimistic.history.size(), 1U);
  EXPECT_NEAR(optimistic.history[0].reference_seconds, 1.6, 1e-9);
}

// A ramp of the batch size changes the time of a step, and not that of a token.
TEST(StepWatchOfHistory, ARampOfTheTokensIsNoRegression) {
  Steps job(unplanned_job());
  for (int stage = 0; stage < 8; ++stage) {
    const double more = 1 + 0.5 * stage;
    job.run(1500, {.seconds = more, .communication = 0.2, .tokens = 1e6 * more});
  }
  EXPECT_TRUE(job.history.empty());
  job.run(1500, {.seconds = 1.3 * 4.5, .communication = 0.9 + 0.3 * 4.5, .tokens = 4.5e6});
  ASSERT_EQ(job.history.size(), 1U);
  EXPECT_EQ(job.history[0].part, StepPart::kCommunication);
  EXPECT_GT(job.history[0].growth, 2);
}

TEST(StepWatchOfHistory, RarePausesAndShortDisturbancesAreNoRegression) {
  Steps job(unplanned_job());
  for (int i = 0; i < 40; ++i) {
    job.run(280);
    job.run(1, {.seconds = 90});  // an evaluation that the program does not name
    job.run(1, {.stall = 25});    // a checkpoint that blocks
    job.page.phase = Phase::kEval;
    job.now += kWindow;
    job.report();
    job.page.phase = Phase::kStep;
    job.report();
    job.run(100);
    job.run(100, {.seconds = 1.5});  // a busy network for some minutes
  }
  EXPECT_TRUE(job.history.empty());
}

// The time of a step as a random value.
using StepTime = double (*)(std::mt19937_64&);
double unit(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }
double normal(std::mt19937_64& random) {
  const double radius = std::sqrt(-2 * std::log(1 - unit(random)));
  return radius * std::cos(6.283185307179586 * unit(random));
}

// Days of even and uneven data, two sizes of batches, and long tails, with short steps and with
// steps of a minute.
TEST(StepWatchOfHistory, NoiseIsNoRegression) {
  const std::pair<const char*, StepTime> programs[] = {
      {"even", [](std::mt19937_64& random) { return 1 + 0.05 * std::abs(normal(random)); }},
      {"uneven", [](std::mt19937_64& random) { return std::exp(0.3 * normal(random)); }},
      {"two sizes", [](std::mt19937_64& random) { return unit(random) < 0.45 ? 1.5 : 1.0; }},
      {"long tail", [](std::mt19937_64& random) { return 0.7 / std::sqrt(1.001 - unit(random)); }},
  };
  for (const double length : {4.0, 60.0}) {
    for (const auto& [name, draw] : programs) {
      std::mt19937_64 random(7);
      Steps job(unplanned_job());
      for (int i = 0; i < (length > 10 ? 20'000 : 108'000); ++i) {
        const double seconds = length * draw(random);
        job.run(1, {.seconds = seconds, .communication = seconds / 5, .stall = 0});
      }
      EXPECT_TRUE(job.history.empty()) << name << " steps of " << length << " s";
      // The noise does not hide a job that takes three times as long.
      for (int i = 0; i < 300 && job.history.empty(); ++i) {
        const double seconds = length * draw(random);
        job.run(1, {.seconds = 3 * seconds, .communication = 2.2 * seconds, .stall = 0});
      }
      ASSERT_EQ(job.history.size(), 1U) << name << " steps of " << length << " s";
      EXPECT_EQ(job.history[0].part, StepPart::kCommunication);
    }
  }
}

}  // namespace
}  // namespace muster::coordinator
