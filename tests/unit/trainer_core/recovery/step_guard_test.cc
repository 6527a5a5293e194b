#include "trainer_core/recovery/step_guard.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace muster::trainer {
namespace {

using testing::HasSubstr;

StepGuard guard_of(NotFinitePolicy policy) {
  TrainConfig config;
  config.not_finite_policy = policy;
  return StepGuard(config);
}

// Steps that are not finite
// -------------------------------------------------------------------------------------------------

TEST(StepGuard, AbortEndsTheJobAtOnce) {
  StepGuard guard = guard_of(NotFinitePolicy::kAbort);
  EXPECT_EQ(guard.on_not_finite().action, StepAction::kAbort);
}

TEST(StepGuard, SkipsAreBoundedInARow) {
  StepGuard guard = guard_of(NotFinitePolicy::kSkip);
  for (int round = 0; round < 3; ++round) {
    for (int i = 1; i <= kSkipsInARowMax; ++i) {
      const StepDecision decision = guard.on_not_finite();
      EXPECT_EQ(decision.action, StepAction::kSkipBatch);
      EXPECT_THAT(decision.reason,
                  HasSubstr("number " + std::to_string(i) + " in a row of at most 8"));
    }
    guard.on_finite(1, 1);
  }
  for (int i = 0; i < kSkipsInARowMax; ++i) guard.on_not_finite();
  guard.on_checkpoint();  // saves the last completed step; does not affect the count of skips
  const StepDecision last = guard.on_not_finite();
  EXPECT_EQ(last.action, StepAction::kAbort);
  EXPECT_THAT(last.reason, HasSubstr("the 8 batches before it were skipped"));
}

TEST(StepGuard, RollbacksAreBoundedByCheckpoint) {
  StepGuard guard = guard_of(NotFinitePolicy::kRollback);
  const int most = TrainConfig().max_rollbacks;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < most; ++i) {
      EXPECT_EQ(guard.on_not_finite().action, StepAction::kRollback);
      EXPECT_TRUE(guard.return_to({}, round));  // saved before the first rollback
      guard.on_finite(1, 1);                    // steps that the next rollback undoes
    }
    guard.on_checkpoint();
  }
  for (int i = 0; i < most; ++i) {
    EXPECT_EQ(guard.on_not_finite().action, StepAction::kRollback);
    EXPECT_TRUE(guard.return_to({}, 3));
  }
  guard.on_finite(1, 1);
  const StepDecision last = guard.on_not_finite();
  EXPECT_EQ(last.action, StepAction::kAbort);
  EXPECT_THAT(last.reason, HasSubstr("returned to this checkpoint 4 times already"));
}

// A restart from a checkpoint that was saved after a rollback does not begin to count again.
TEST(StepGuard, RollbacksCountAcrossRestarts) {
  TrainConfig config;
  config.not_finite_policy = NotFinitePolicy::kRollback;
  config.max_rollbacks = 1;
  StepGuard first(config);
  EXPECT_EQ(first.on_not_finite().action, StepAction::kRollback);
  EXPECT_TRUE(first.return_to({}, 12));
  StepGuard second(config);
  second.resume(first.state(), 12);
  const StepDecision last = second.on_not_finite();
  EXPECT_EQ(last.action, StepAction::kAbort);
  EXPECT_THAT(last.reason, HasSubstr("returned to this checkpoint 1 time already"));
}

// Spikes
// -------------------------------------------------------------------------------------------------

TrainConfig skipping(int64_t interval = 8, double factor = 6) {
  TrainConfig config;
  config.spikes = {.skip_step = true, .interval = interval, .scaling_factor = factor};
  return config;
}

TrainConfig rolling_back(int32_t after) {
  TrainConfig config;
  config.spikes = {.interval = 8, .scaling_factor = 6, .rollback_after = after};
  return config;
}

// Returns the steps of `losses` whose update is not applied.
std::vector<size_t> held(StepGuard& guard, const std::vector<double>& losses, double norm = 1) {
  std::vector<size_t> steps;
  for (size_t i = 0; i < losses.size(); ++i) {
    if (guard.on_finite(losses[i], norm).action == StepAction::kHoldUpdate) steps.push_back(i);
  }
  return steps;
}

// Numbers in [-1, 1) without a pattern.
double noise(uint64_t i) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9;
  x ^= x >> 27;
  return static_cast<double>(x >> 11) / 4503599627370496.0 - 1;
}

TEST(SpikeSkip, AConstantHasNoSpikes) {
  // The mean of 0.1 is not exact.
  for (const double value : {1.0, 0.1, 1e300, 3e-310}) {
    StepGuard guard(skipping(128));
    EXPECT_THAT(held(guard, std::vector<double>(1000, value), value), testing::IsEmpty());
  }
}

TEST(SpikeSkip, RampsAndNoiseHaveNoSpikes) {
  std::vector<double> falls, rises, noisy;
  for (int i = 0; i < 1000; ++i) {
    falls.push_back(10 - 0.01 * i);
    rises.push_back(1 + 0.01 * i);
    noisy.push_back(4 + noise(static_cast<uint64_t>(i)));
  }
  for (const auto& losses : {falls, rises, noisy}) {
    StepGuard guard(skipping(64));
    EXPECT_THAT(held(guard, losses), testing::IsEmpty());
  }
}

// The first steps of MaxText's optimizer wrapper with the interval 8: from the fourth step on, with
// three known, a step may be a spike.
TEST(SpikeSkip, NoSpikeIsFoundBeforeHalfOfTheInterval) {
  StepGuard early(skipping(8));
  EXPECT_THAT(held(early, {4, 4.1, 400}), testing::IsEmpty());
  StepGuard later(skipping(8));
  EXPECT_THAT(held(later, {4, 4.1, 4, 400}), testing::ElementsAre(3U));
  StepGuard two(skipping(2));
  EXPECT_THAT(held(two, {4, 5}), testing::ElementsAre(1U));
  StepGuard one(skipping(1));
  EXPECT_THAT(held(one, {4, 3, 3, 5, 5}), testing::ElementsAre(3U));
}

// mean 2, deviation 1 (of n - 1), so that the bound with the factor 2 is 4.
TEST(SpikeSkip, TheBoundHasTheUnbiasedDeviation) {
  for (const bool is_above : {false, true}) {
    StepGuard guard(skipping(6, 2));
    for (const double value : {1.0, 2.0, 3.0}) guard.on_finite(value, value);
    const double value = is_above ? 4.001 : 4.0;
    const StepDecision of_loss = guard.on_finite(value, 2);
    EXPECT_EQ(of_loss.action, is_above ? StepAction::kHoldUpdate : StepAction::kApply);
    ASSERT_EQ(of_loss.spike.has_value(), is_above);
    if (!is_above) continue;
    EXPECT_EQ(of_loss.spike->loss, 4);
    EXPECT_EQ(of_loss.spike->grad_norm, 4);
  }
  StepGuard guard(skipping(6, 2));
  for (const double value : {1.0, 2.0, 3.0}) guard.on_finite(value, value);
  EXPECT_EQ(guard.on_finite(2, 4.001).action, StepAction::kHoldUpdate) << "a gradient";
}

// As in MaxText a new level is accepted: the spikes count for the bounds.
TEST(SpikeSkip, ANewLevelIsAccepted) {
  StepGuard guard(skipping(128));
  std::vector<double> losses;
  for (int i = 0; i < 256; ++i) losses.push_back(4 + 0.1 * noise(static_cast<uint64_t>(i)));
  for (int i = 256; i < 400; ++i) losses.push_back(8 + 0.1 * noise(static_cast<uint64_t>(i)));
  const std::vector<size_t> steps = held(guard, losses);
  // If k of 128 values are a distance d above the others, the mean is d k / 128 above them, and the
  // deviation is d sqrt(k / 128): 6 deviations exceed the distance when k = 4.
  EXPECT_THAT(steps, testing::ElementsAre(256U, 257U, 258U, 259U));
}

TEST(SpikeSkip, OnlyTheIntervalCounts) {
  StepGuard guard(skipping(8));
  held(guard, {1000, 1, 500, 1, 1000, 1, 500, 1});
  EXPECT_THAT(held(guard, {1, 1.1, 1, 1.1, 1, 1.1, 1, 1.1, 3}), testing::ElementsAre(8U));
  EXPECT_EQ(guard.state().losses.size(), 8U);
  EXPECT_EQ(guard.state().skipped_updates, 1);
}

// NaN in the window would make every comparison false, so that the next steps of the interval were
// all skipped.
TEST(SpikeSkip, StepsThatAreNotFiniteDoNotCountForTheBounds) {
  TrainConfig config = skipping(8);
  config.not_finite_policy = NotFinitePolicy::kSkip;
  StepGuard guard(config);
  held(guard, {1, 1.1, 1, 1.1});
  EXPECT_EQ(guard.on_not_finite().action, StepAction::kSkipBatch);
  EXPECT_THAT(held(guard, {1, 1.1, 3}), testing::ElementsAre(2U));
}

TEST(SpikeSkip, ARestoredStateGivesTheSameDecisions) {
  std::vector<double> losses;
  for (uint64_t i = 0; i < 300; ++i) losses.push_back(4 + noise(i) + (i % 37 == 0 ? 20 : 0));
  StepGuard whole(skipping(16, 3));
  const std::vector<size_t> expected = held(whole, losses);
  EXPECT_GT(expected.size(), 3U);
  for (const size_t cut : {5U, 100U, 112U}) {
    StepGuard before(skipping(16, 3));
    held(before, {losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(cut)});
    StepGuard after(skipping(16, 3));
    after.resume(spike_state_of(nlohmann::json::parse(spike_json(before.state()).dump())), -1);
    held(after, {losses.begin() + static_cast<std::ptrdiff_t>(cut), losses.end()});
    EXPECT_EQ(after.state(), whole.state());
  }
}

TEST(SpikeSkip, AStateOfALongerIntervalIsCut) {
  StepGuard guard(skipping(4));
  guard.resume({.losses = {9, 8, 7, 6, 5, 4}, .grad_norms = {1, 2, 3, 4, 5, 6}}, 12);
  EXPECT_THAT(guard.state().losses, testing::ElementsAre(7, 6, 5, 4));
  EXPECT_THAT(guard.state().grad_norms, testing::ElementsAre(3, 4, 5, 6));
}

TEST(SpikeState, ListsOfDifferentSizesAreDamaged) {
  nlohmann::json json = spike_json({.losses = {1, 2}, .grad_norms = {1, 2}});
  json["losses"].push_back(3);
  EXPECT_ANY_THROW(spike_state_of(json));
  json["grad_norms"] = {1, 2, 3, 4};
  EXPECT_ANY_THROW(spike_state_of(json));
}

// Rollbacks after spikes
// -------------------------------------------------------------------------------------------------

TEST(SpikeRollback, SpikesInARowTakeTheJobBack) {
  StepGuard guard(rolling_back(3));
  held(guard, {1, 1.1, 1, 1.1});
  for (int i = 1; i <= 2; ++i) {
    const StepDecision decision = guard.on_finite(9, 1);
    EXPECT_EQ(decision.action, StepAction::kApply);
    EXPECT_THAT(decision.reason, HasSubstr("number " + std::to_string(i) +
                                           " in a row, number 3 takes the job back"));
    EXPECT_TRUE(guard.in_spike());
  }
  EXPECT_EQ(guard.on_finite(1, 1).action, StepAction::kApply);
  EXPECT_FALSE(guard.in_spike());
  for (int i = 1; i <= 2; ++i) EXPECT_EQ(guard.on_finite(9, 1).action, StepAction::kApply);
  const StepDecision third = guard.on_finite(9, 1);
  EXPECT_EQ(third.action, StepAction::kRollback);
  EXPECT_THAT(
      third.reason,
      HasSubstr("number 3 in a row: back to the newest checkpoint, rollback 1 of at most 4"));
  EXPECT_TRUE(guard.return_to({}, 12));
  EXPECT_FALSE(guard.in_spike());
  EXPECT_EQ(guard.state().rollbacks, 1);
}

// The bounds would otherwise exceed the spikes before there are so many.
TEST(SpikeRollback, SpikesDoNotCountForTheBounds) {
  StepGuard guard(rolling_back(100));
  held(guard, {1, 1.1, 1, 1.1});
  for (int i = 1; i < 100; ++i) EXPECT_TRUE(guard.on_finite(3, 1).spike.has_value());
  EXPECT_EQ(guard.on_finite(3, 1).action, StepAction::kRollback);
}

TEST(SpikeRollback, UpdatesOfSpikesMayBeSkippedToo) {
  TrainConfig config = rolling_back(2);
  config.spikes.skip_step = true;
  StepGuard guard(config);
  held(guard, {1, 1.1, 1, 1.1});
  EXPECT_EQ(guard.on_finite(9, 1).action, StepAction::kHoldUpdate);
  EXPECT_EQ(guard.state().skipped_updates, 1);
  EXPECT_EQ(guard.on_finite(9, 1).action, StepAction::kRollback);
}

TEST(SpikeRollback, TooManyRollbacksEndTheJob) {
  TrainConfig config = rolling_back(1);
  config.max_rollbacks = 2;
  StepGuard guard(config);
  SpikeState saved;
  for (int i = 0; i < 2; ++i) {
    held(guard, {1, 1.1, 1, 1.1});
    EXPECT_EQ(guard.on_finite(9, 1).action, StepAction::kRollback);
    EXPECT_TRUE(guard.return_to(saved, 12));
  }
  held(guard, {1, 1.1, 1, 1.1});
  const StepDecision last = guard.on_finite(9, 1);
  EXPECT_EQ(last.action, StepAction::kAbort);
  EXPECT_THAT(last.reason, HasSubstr("returned to this checkpoint 2 times already"));
  EXPECT_THAT(spike_line({}, 4, 7, last),
              testing::AllOf(HasSubstr("Aborting training due to loss spikes. Step 0: loss 0 (at "),
                             HasSubstr("global samples 4 to 7: ")));
}

// The bound counts returns to one checkpoint. A save that was begun may have failed, which only the
// next return shows.
TEST(SpikeRollback, RollbacksCountByCheckpoint) {
  TrainConfig config = rolling_back(1);
  config.max_rollbacks = 1;
  StepGuard guard(config);
  const auto spike = [&] {
    held(guard, {1, 1.1, 1, 1.1});
    return guard.on_finite(9, 1).action;
  };
  EXPECT_EQ(spike(), StepAction::kRollback);
  EXPECT_TRUE(guard.return_to({}, 12));
  guard.on_checkpoint();
  const SpikeState saved = guard.state();
  EXPECT_EQ(spike(), StepAction::kRollback) << "the checkpoint of step 24";
  StepGuard failed = guard;
  EXPECT_TRUE(guard.return_to(saved, 24));
  EXPECT_EQ(guard.state().rollbacks, 1);
  EXPECT_EQ(spike(), StepAction::kAbort);
  EXPECT_FALSE(failed.return_to(saved, 12)) << "the save of step 24 had failed";
}

// A diverging loss crosses its bound again and again.
TEST(SpikeRollback, ASpikeEndsAfterAsManyStepsWithinTheBounds) {
  StepGuard guard(rolling_back(3));
  held(guard, {1, 1.1, 1, 1.1, 9});
  EXPECT_TRUE(guard.near_spike());
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(guard.on_finite(1, 1).action, StepAction::kApply);
    EXPECT_FALSE(guard.in_spike());
    EXPECT_EQ(guard.near_spike(), i < 3);
  }
}

TEST(SpikeRollback, SkippedBatchesThatAreNotFiniteCountInTheRow) {
  TrainConfig config = rolling_back(3);
  config.not_finite_policy = NotFinitePolicy::kSkip;
  StepGuard guard(config);
  held(guard, {1, 1.1, 1, 1.1});
  EXPECT_EQ(guard.on_finite(9, 1).action, StepAction::kApply);
  EXPECT_EQ(guard.on_not_finite().action, StepAction::kSkipBatch);
  EXPECT_EQ(guard.on_finite(9, 1).action, StepAction::kRollback);
}

// More batches in a row than not_finite_policy=skip permits take the job back instead of ending it.
TEST(SpikeRollback, TooManySkippedBatchesTakeTheJobBack) {
  TrainConfig config = rolling_back(100);
  config.not_finite_policy = NotFinitePolicy::kSkip;
  StepGuard guard(config);
  for (int i = 0; i < kSkipsInARowMax; ++i)
    EXPECT_EQ(guard.on_not_finite().action, StepAction::kSkipBatch);
  EXPECT_EQ(guard.on_not_finite().action, StepAction::kRollback);
}

}  // namespace
}  // namespace muster::trainer
