#include "coordinator/core/incident/recovery_times.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

TEST(AttemptWatch, IsLoadedWhenTheLastRankTrains) {
  AttemptWatch watch(2);
  EXPECT_FALSE(watch.observe(0, Phase::kCheckpointRestore, -1, 0).loaded);
  EXPECT_FALSE(watch.observe(0, Phase::kData, 40, 0).loaded);
  EXPECT_FALSE(watch.observe(0, Phase::kStep, 40, 0).loaded);
  EXPECT_TRUE(watch.observe(1, Phase::kStep, 40, 0).loaded);
  EXPECT_FALSE(watch.observe(1, Phase::kStep, 40, 0).loaded);
  EXPECT_EQ(watch.base_step(), 40);
}

TEST(AttemptWatch, ReportsTheFirstStepOnceAndTheRestoredStep) {
  AttemptWatch watch(2);
  EXPECT_TRUE(watch.observe(1, Phase::kStep, 43, 3).first_step);
  EXPECT_FALSE(watch.observe(0, Phase::kStep, 43, 3).first_step);
  EXPECT_EQ(watch.base_step(), 40);
  EXPECT_EQ(watch.newest_step(), 43);
}

TEST(AttemptWatch, PagesMayHoldAnything) {
  AttemptWatch watch(1);
  watch.observe(7, Phase::kStep, 3, UINT64_MAX);
  EXPECT_EQ(watch.base_step(), 0);
}

TEST(Recovery, MomentsAreMarkedOnceAndNeverFall) {
  Recovery recovery;
  mark(recovery, RecoveryMoment::kDetected, 100);
  mark(recovery, RecoveryMoment::kDetected, 50);
  mark(recovery, RecoveryMoment::kDecided, 90);  // the wall clock was set back
  EXPECT_EQ(recovery.at(RecoveryMoment::kDetected), 100);
  EXPECT_EQ(recovery.at(RecoveryMoment::kDecided), 100);
}

TEST(Recovery, AnotherAttemptStartsFromTheBeginning) {
  Recovery recovery;
  mark(recovery, RecoveryMoment::kStopped, 100);
  begin_attempt(recovery, 110);
  mark(recovery, RecoveryMoment::kUp, 120);
  begin_attempt(recovery, 130);
  EXPECT_EQ(recovery.attempts, 2);
  EXPECT_EQ(recovery.at(RecoveryMoment::kStopped), 100);
  EXPECT_EQ(recovery.at(RecoveryMoment::kStarted), 130);
  EXPECT_EQ(recovery.at(RecoveryMoment::kUp), 0);
}

TEST(Recovery, StepsLostAreThoseThatAreMadeAgain) {
  Recovery recovery;
  EXPECT_EQ(recovery.steps_lost(), -1);
  recovery.best_step = 47;
  recovery.restored_step = 40;
  EXPECT_EQ(recovery.steps_lost(), 7);
  recovery.restored_step = 48;
  EXPECT_EQ(recovery.steps_lost(), 0);
}

}  // namespace
}  // namespace muster::coordinator
