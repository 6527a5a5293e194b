#include "trainer_core/optim/schedule.h"

#include <cmath>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

OptimizerConfig config_of(int64_t steps, double warmup) {
  OptimizerConfig config;
  config.learning_rate = 2e-3;
  config.schedule_steps = steps;
  config.warmup_steps_fraction = warmup;
  return config;
}

TEST(Schedule, WarmUpIsLinearFromZero) {
  const OptimizerConfig config = config_of(1000, 0.1);
  EXPECT_EQ(learning_rate(config, 0), 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1), 2e-5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 50), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 99), 99 * 2e-5);
}

TEST(Schedule, CosineEndsNearTheFinalFraction) {
  const OptimizerConfig config = config_of(1000, 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100), 2e-3);
  EXPECT_NEAR(learning_rate(config, 550), 2e-3 * 0.55, 1e-12);  // half way: the mean of both ends
  EXPECT_NEAR(learning_rate(config, 400), 2e-3 * (0.75 + 0.025),
              1e-12);  // a third: (cos 60° + 1) / 2
  EXPECT_GT(learning_rate(config, 999), 2e-4);
  EXPECT_LT(learning_rate(config, 999), 2.0001e-4);
  EXPECT_EQ(learning_rate(config, 1000), 0);
  EXPECT_EQ(learning_rate(config, 5000), 0);
}

TEST(Schedule, FractionsRoundDown) {
  const OptimizerConfig config = config_of(15, 0.1);  // int(1.5) = 1 step of warm-up
  EXPECT_EQ(learning_rate(config, 0), 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1), 2e-3);
}

TEST(Schedule, Extremes) {
  EXPECT_DOUBLE_EQ(learning_rate(config_of(10, 0), 0), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config_of(1, 0.1), 0), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config_of(10, 1), 9), 2e-3 * 0.9);
  EXPECT_EQ(learning_rate(config_of(10, 1), 10), 0);
}

}  // namespace
}  // namespace muster::trainer
