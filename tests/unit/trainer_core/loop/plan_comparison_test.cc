#include "trainer_core/loop/plan_comparison.h"

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

StepRecord step(double seconds, double communication, double data, double stall = 0) {
  StepRecord record;
  record.seconds = seconds;
  record.collective_wait_seconds = communication;
  record.data_wait_seconds = data;
  record.checkpoint_stall_seconds = stall;
  return record;
}

TEST(PlanComparison, TheFirstStepDoesNotCount) {
  TrainConfig config;
  config.planned_step_seconds = 1;
  config.planned_communication_seconds = 0.25;
  PlanComparison comparison(config);
  comparison.add(step(100, 50, 0));
  EXPECT_EQ(comparison.time_line(), "");
  comparison.add(step(1.25, 0.5, 0.125));
  comparison.add(step(1.25, 0.5, 0.125, 1));
  EXPECT_EQ(comparison.time_line(),
            "summary: planned step 1 s, measured 1.25 s (+25.0%): computation -0.125 s, "
            "communication +0.25 s, data +0.125 s; checkpoints stall 0.5 s per step");
  // Waits that the plan has.
  config.planned_data_seconds = 0.25;
  config.planned_checkpoint_seconds = 0.125;
  EXPECT_EQ(comparison.time_line(),
            "summary: planned step 1 s, measured 1.25 s (+25.0%): computation +0.125 s, "
            "communication +0.25 s, data -0.125 s; checkpoints stall 0.5 s per step, planned "
            "0.125 s");
}

TEST(PlanComparison, AJobWithoutAPlannedTimeHasNoLine) {
  TrainConfig config;
  PlanComparison comparison(config);
  comparison.add(step(1, 0, 0));
  comparison.add(step(1, 0, 0));
  EXPECT_EQ(comparison.time_line(), "");
}

TEST(PlanComparison, MemoryIsInMebibytes) {
  EXPECT_EQ(PlanComparison::memory_line(size_t{200} << 20, size_t{150} << 20),
            "summary: planned memory 200.0 MiB, measured 150.0 MiB (-25.0%)");
  EXPECT_GT(used_memory_bytes(nullptr), size_t{1} << 20);
}

}  // namespace
}  // namespace muster::trainer
