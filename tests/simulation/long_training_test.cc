// Tests weeks of faults in a small training: it needs no operator, every second is accounted for,
// and the account is correct. bench/recovery_simulation simulates large trainings.
#include "tests/simulation/long_training.h"

#include <iostream>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/unit/sanitized.h"

namespace muster::simulation {
namespace {

using coordinator::IncidentKind;
using coordinator::JobState;
using coordinator::RecoveryMoment;

// 128 ranks, of which some fail every hour: 2 days have as many faults as 5 days of 16,384 ranks.
LongPlan small_plan() {
  LongPlan plan;
  plan.nodes = 16;
  plan.spares = 24;  // repairs take the usual time
  plan.days = 2;
  plan.rate = 320;
  return plan;
}

// On average three nodes are out of service, often more than there are spares: the job continues on
// fewer nodes.
LongPlan short_plan() {
  LongPlan plan = small_plan();
  plan.rate = 80;
  plan.days = kSanitized ? 3 : 8;
  plan.spares = 2;
  plan.smaller_sizes = {14, 12, 10, 8};
  return plan;
}

class LongTrainings : public testing::TestWithParam<std::tuple<uint64_t, bool>> {};

TEST_P(LongTrainings, NeedNoOperatorAndAccountForAllTime) {
  const auto [seed, has_spares] = GetParam();
  const LongPlan plan = has_spares ? small_plan() : short_plan();
  const LongResult result = LongTraining(plan, seed).run();
  EXPECT_EQ(result.state, JobState::kRunning) << result.reason;
  EXPECT_GT(result.attempts, 10);

  const double wall = to_seconds(result.table.wall());
  EXPECT_NEAR(wall, plan.days * 86'400, 1) << "all of it";
  // Heartbeats report late by a quarter of a second and one step at each fault.
  const double per_fault = to_seconds(plan.step_time) + 1;
  EXPECT_NEAR(to_seconds(result.table.productive()), to_seconds(result.productive),
              per_fault * result.attempts);
  // Without enough nodes the job waits for a repair.
  if (has_spares) {
    EXPECT_LE(to_seconds(result.longest_without_a_step), 1'800);
  }
  // The job grows after enough nodes were free for at most half an hour (placement/growth.cc), and
  // one start.
  constexpr double kGrownWithin = 35 * 60;
  EXPECT_LE(to_seconds(result.on_fewer_than_possible), kGrownWithin * result.attempts)
      << "of " << to_seconds(result.on_fewer_nodes) << " s on fewer nodes";
  std::cout << "ETTR " << result.table.ratio() << ", true " << to_seconds(result.productive) / wall
            << ", " << result.attempts << " attempts, " << to_seconds(result.on_fewer_nodes)
            << " s on fewer nodes, " << to_seconds(result.on_fewer_than_possible)
            << " of them on fewer than it could\n";

  int came_back = 0;
  for (const auto& incident : result.incidents) {
    if (!incident.recovery) continue;
    const auto& recovery = *incident.recovery;
    for (size_t i = 1; i < coordinator::kRecoveryMoments; ++i) {
      if (recovery.unix_ns[i] != 0) {
        EXPECT_GE(recovery.unix_ns[i], recovery.unix_ns[i - 1]) << i;
      }
    }
    if (recovery.at(RecoveryMoment::kCaughtUp) == 0) continue;
    ++came_back;
    EXPECT_GE(recovery.steps_lost(), 0);
    EXPECT_LE(recovery.steps_lost(), 2 * plan.checkpoint_every);
  }
  EXPECT_GT(came_back, 5);
}

// Every few hours a node becomes slow for some hours. No other one is confirmed, and jobs that
// leave slow nodes lose a small part of what others lose.
TEST(SlowNodes, AreLeftForOtherNodes) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 1 : 2); ++seed) {
    LongPlan plan = small_plan();
    plan.spares = 8;
    plan.rate = 10;
    plan.days = 6;
    plan.slow_nodes_per_day = 3;
    const LongResult replaced = LongTraining(plan, seed).run();
    plan.slow_nodes = coordinator::SlowNodePolicy::kReport;
    const LongResult reported = LongTraining(plan, seed).run();
    std::cout << "slow nodes cost " << to_seconds(replaced.lost_to_slow_nodes) << " s instead of "
              << to_seconds(reported.lost_to_slow_nodes) << " s, " << replaced.slow_nodes_found
              << " found, " << replaced.attempts << " attempts, " << replaced.steps
              << " steps instead of " << reported.steps << "\n";
    for (const LongResult* result : {&replaced, &reported}) {
      EXPECT_EQ(result->state, JobState::kRunning) << result->reason;
      EXPECT_EQ(result->slow_nodes_mistaken, 0);
      EXPECT_GT(result->slow_nodes_found, 3);
    }
    EXPECT_LT(10 * replaced.lost_to_slow_nodes, reported.lost_to_slow_nodes);
    EXPECT_GT(replaced.steps, reported.steps);
  }
}

constexpr uint64_t kTrainings = kSanitized ? 1 : 12;
INSTANTIATE_TEST_SUITE_P(Seeds, LongTrainings,
                         testing::Combine(testing::Range<uint64_t>(1, kTrainings + 1),
                                          testing::Bool()));

}  // namespace
}  // namespace muster::simulation
