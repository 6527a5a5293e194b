// Steps compared with those of the attempt's first hour.
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "coordinator/core/hang/step_watch.h"
#include "tests/unit/coordinator/core/hang/step_watch_fixture.h"

namespace muster::coordinator {
namespace {

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

// The mean of the tokens since the attempt began lags behind those of a step.
TEST(StepWatchOfHistory, ALateRampOfTheBatchSizeIsNoRegression) {
  Steps job(unplanned_job());
  job.run(4 * 3'600, {.stall = 0, .tokens = 1'000});
  job.run(4 * 3'600, {.seconds = 2, .communication = 0.4, .stall = 0, .tokens = 2'000});
  EXPECT_TRUE(job.history.empty());
  job.run(4 * 3'600, {.seconds = 3, .communication = 1.4, .stall = 0, .tokens = 2'000});
  ASSERT_EQ(job.history.size(), 1U);
  EXPECT_EQ(job.history.front().part, StepPart::kCommunication);
}

TEST(StepWatchOfHistory, OneSlowSaveIsNoRegressionAndTwoAre) {
  for (const bool continues : {false, true}) {
    Steps job(unplanned_job());
    const auto period = [&](double stall) {
      job.run(599, {.stall = 0});
      job.run(1, {.stall = stall});
    };
    for (int i = 0; i < 12; ++i) period(10);
    period(130);
    period(continues ? 130 : 10);
    for (int i = 0; i < 3; ++i) period(continues ? 130 : 10);
    ASSERT_EQ(job.history.size(), continues ? 1U : 0U);
    if (continues) {
      EXPECT_EQ(job.history.front().part, StepPart::kCheckpoint);
    }
  }
}

TEST(StepWatchOfHistory, AnOldFindingOfThePlanDoesNotHideALaterRegression) {
  Steps job;
  job.run(3'600, {.seconds = 1.02, .communication = 0.22});
  job.run(1'200, {.seconds = 1.2, .communication = 0.4});
  ASSERT_EQ(job.findings.size(), 1U);
  EXPECT_TRUE(job.history.empty()) << "the plan's finding covers it";
  job.run(1'200, {.seconds = 2.4, .communication = 1.6});
  ASSERT_EQ(job.history.size(), 1U);
  EXPECT_TRUE(job.history.front().is_slower);
}

TEST(StepWatchOfHistory, WaitsForDataAloneDoNotShowTheComputation) {
  Steps job(unplanned_job());
  job.run(3'600, {.communication = 0, .data = 0.1, .stall = 0});
  job.run(1'200, {.seconds = 1.5, .communication = 0, .data = 0.1, .stall = 0});
  ASSERT_EQ(job.history.size(), 1U);
  EXPECT_EQ(job.history.front().part, StepPart::kComputation);
  EXPECT_FALSE(job.history.front().part_is_known);
}

}  // namespace
}  // namespace muster::coordinator
