#include "trainer_core/optim/schedule.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

OptimizerConfig config_of(ScheduleType schedule, int64_t steps, int64_t warmup) {
  OptimizerConfig config;
  config.schedule = schedule;
  config.learning_rate = 2e-3;
  config.schedule_steps = steps;
  config.warmup_steps = warmup;
  return config;
}

OptimizerConfig cosine(int64_t steps, int64_t warmup) {
  return config_of(ScheduleType::kCosine, steps, warmup);
}

OptimizerConfig wsd(DecayStyle style) {
  OptimizerConfig config = config_of(ScheduleType::kWsd, 1000, 100);
  config.decay_start = 800;
  config.decay_end = 1000;
  config.wsd_decay_style = style;
  return config;
}

// Pax's GPT126M.
OptimizerConfig rampup_cosine() {
  OptimizerConfig config = config_of(ScheduleType::kRampupCosine, 600'000, 636);
  config.learning_rate = 6e-4;
  config.decay_start = 637;
  config.decay_end = 500'000;
  return config;
}

// The defaults of Pax's TransformerLmSpmdAdam.
OptimizerConfig rampup_exponential() {
  OptimizerConfig config = config_of(ScheduleType::kRampupExponential, 600'000, 4000);
  config.learning_rate = 1e-3;
  config.decay_start = 4001;
  config.decay_end = 300'000;
  return config;
}

struct Point {
  int64_t step;
  double rate;
};

void expect_points(const OptimizerConfig& config, const std::vector<Point>& points) {
  for (const Point& point : points)
    EXPECT_NEAR(learning_rate(config, point.step), point.rate, 1e-14) << "step " << point.step;
}

TEST(Schedule, WarmUpIsLinearFromZero) {
  const OptimizerConfig config = cosine(1000, 100);
  EXPECT_EQ(learning_rate(config, 0), 0);
  EXPECT_DOUBLE_EQ(learning_rate(config, 1), 2e-5);
  EXPECT_DOUBLE_EQ(learning_rate(config, 50), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(config, 99), 99 * 2e-5);
}

TEST(Schedule, CosineEndsNearTheFinalFraction) {
  const OptimizerConfig config = cosine(1000, 100);
  EXPECT_DOUBLE_EQ(learning_rate(config, 100), 2e-3);
  EXPECT_NEAR(learning_rate(config, 550), 2e-3 * 0.55, 1e-12);  // half way: the mean of both ends
  EXPECT_NEAR(learning_rate(config, 400), 2e-3 * (0.75 + 0.025),
              1e-12);  // a third: (cos 60° + 1) / 2
  EXPECT_GT(learning_rate(config, 999), 2e-4);
  EXPECT_LT(learning_rate(config, 999), 2.0001e-4);
  EXPECT_EQ(learning_rate(config, 1000), 0);
  EXPECT_EQ(learning_rate(config, 5000), 0);
}

TEST(Schedule, CosineExtremes) {
  EXPECT_DOUBLE_EQ(learning_rate(cosine(10, 0), 0), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(cosine(1, 0), 0), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(cosine(10, 10), 9), 2e-3 * 0.9);
  EXPECT_EQ(learning_rate(cosine(10, 10), 10), 0);
  EXPECT_EQ(learning_rate(cosine(10, 20), 10), 0);  // T ends the warm-up, too
}

// The tables below were computed in Python from pieces as optax has them (linear_schedule,
// constant_schedule, a cosine, an exponential), joined at their boundaries as optax.join_schedules
// does.
TEST(Schedule, Constant) {
  expect_points(config_of(ScheduleType::kConstant, 1000, 100), {{0, 0},
                                                                {1, 2e-05},
                                                                {50, 0.001},
                                                                {99, 0.00198},
                                                                {100, 0.002},
                                                                {500, 0.002},
                                                                {999, 0.002},
                                                                {1000, 0.002},
                                                                {100'000, 0.002}});
  EXPECT_EQ(learning_rate(config_of(ScheduleType::kConstant, 1000, 0), 0), 2e-3);
}

TEST(Schedule, WsdWithALinearDecay) {
  expect_points(wsd(DecayStyle::kLinear), {{0, 0},
                                           {1, 2e-05},
                                           {99, 0.00198},
                                           {100, 0.002},
                                           {101, 0.002},
                                           {799, 0.002},
                                           {800, 0.002},
                                           {801, 0.00199095477386935},
                                           {850, 0.00154773869346734},
                                           {899, 0.00110452261306533},
                                           {950, 0.00064321608040201},
                                           {998, 0.000209045226130653},
                                           {999, 0.0002},
                                           {1000, 0},
                                           {1500, 0}});
}

TEST(Schedule, WsdWithACosineDecay) {
  expect_points(wsd(DecayStyle::kCosine), {{99, 0.00198},
                                           {100, 0.002},
                                           {800, 0.002},
                                           {801, 0.00199988785056589},
                                           {850, 0.0017338794730874},
                                           {899, 0.00110710403021874},
                                           {950, 0.000456113640397366},
                                           {998, 0.000200112149434108},
                                           {999, 0.0002},
                                           {1000, 0}});
}

TEST(Schedule, AShortWsdDecay) {
  OptimizerConfig config = wsd(DecayStyle::kLinear);
  config.decay_start = 999;  // the decay has one step, which is also its last
  expect_points(config, {{998, 2e-3}, {999, 2e-4}, {1000, 0}});
  config.decay_start = 1000;  // none
  expect_points(config, {{999, 2e-3}, {1000, 0}});
  config.decay_start = 998;
  expect_points(config, {{998, 2e-3}, {999, 2e-4}});
}

TEST(Schedule, PaxsRampUpAndCosine) {
  expect_points(rampup_cosine(), {{0, 0},
                                  {1, 9.43396226415094e-07},
                                  {318, 0.0003},
                                  {635, 0.000599056603773585},
                                  {636, 0.0006},
                                  {637, 0.0006},
                                  {638, 0.000599999999994657},
                                  {1000, 0.000599999295933218},
                                  {250'318, 0.00033000084931204},
                                  {375'159, 0.00013908146935702},
                                  {499'999, 6.00000000053432e-05},
                                  {500'000, 6e-05},
                                  {700'000, 6e-05}});
}

TEST(Schedule, PaxsRampUpAndExponential) {
  expect_points(rampup_exponential(), {{0, 0},
                                       {1, 2.5e-07},
                                       {2000, 0.0005},
                                       {3999, 0.00099975},
                                       {4000, 0.001},
                                       {4001, 0.001},
                                       {4002, 0.000999992221000284},
                                       {152'000, 0.000316228995991865},
                                       {299'999, 0.000100000777906023},
                                       {300'000, 0.0001},
                                       {400'000, 0.0001}});
}

// No step's rate differs from its neighbour's by more than the steepest piece's slope, and none
// leaves [0, lr].
TEST(Schedule, NothingJumpsBeforeTheEnd) {
  for (const OptimizerConfig& config :
       {cosine(1000, 100), wsd(DecayStyle::kLinear), wsd(DecayStyle::kCosine), rampup_cosine(),
        rampup_exponential(), config_of(ScheduleType::kConstant, 1000, 100)}) {
    const double lr = config.learning_rate;
    double slope = lr / static_cast<double>(config.warmup_steps);
    for (int64_t step = 1; step < config.schedule_steps; ++step) {
      const double before = learning_rate(config, step - 1), rate = learning_rate(config, step);
      ASSERT_LE(std::abs(rate - before), slope * (1 + 1e-9)) << step;
      ASSERT_GE(rate, 0);
      ASSERT_LE(rate, lr * (1 + 1e-12));
      if (step <= config.warmup_steps) continue;
      ASSERT_LE(rate, before * (1 + 1e-12)) << step;
    }
  }
}

}  // namespace
}  // namespace muster::trainer
