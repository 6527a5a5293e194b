#include "trainer_core/optim/adamw.h"

#include <cmath>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

// Two parameters, the second without decay.
std::vector<ParamSpec> table() {
  ParamSpec first, second;
  first.name = "first";
  first.shape = {3};
  second.name = "second";
  second.shape = {2};
  second.offset = 3;
  second.decay = false;
  return {first, second};
}

TEST(AdamW, FirstUpdateMovesByTheRate) {
  const auto ops = cpu_ops(1);
  OptimizerConfig config;
  config.weight_decay = 0.5;
  std::vector<float> params(5, 1), grads{4, -2, 1e-3F, 7, -7}, m(5), v(5);
  adamw_update(*ops, table(), config, 0.01, 0.125, 1, {params, grads, m, v});
  // m̂ / sqrt(v̂) of the first update is the gradient's sign; the scale cancels.
  const double decayed = 1 - 0.01 * 0.5;
  EXPECT_NEAR(params[0], decayed - 0.01, 1e-6);
  EXPECT_NEAR(params[1], decayed + 0.01, 1e-6);
  EXPECT_NEAR(params[2], decayed - 0.01, 1e-6);
  EXPECT_NEAR(params[3], 1 - 0.01, 1e-6);
  EXPECT_NEAR(params[4], 1 + 0.01, 1e-6);
  EXPECT_NEAR(m[0], 0.1 * 4 * 0.125, 1e-7);
  EXPECT_NEAR(v[0], 0.05 * 0.25, 1e-7);
}

TEST(AdamW, RateZeroStillMovesMoments) {
  const auto ops = cpu_ops(1);
  std::vector<float> params(5, 1), grads(5, 1), m(5), v(5);
  adamw_update(*ops, table(), OptimizerConfig{}, 0, 1, 1, {params, grads, m, v});
  EXPECT_EQ(params, std::vector<float>(5, 1));
  EXPECT_GT(m[0], 0);
}

TEST(ClipFactor, BringsTheNormDown) {
  EXPECT_EQ(clip_factor(0.5, 1.0), 1);
  EXPECT_EQ(clip_factor(1.0, 1.0), 1);
  EXPECT_EQ(clip_factor(4.0, 1.0), 0.25);
  EXPECT_EQ(clip_factor(4.0, 0), 1);  // off
  EXPECT_EQ(clip_factor(0, 1.0), 1);
}

}  // namespace
}  // namespace muster::trainer
