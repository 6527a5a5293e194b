#include "coordinator/shell/web/metric_history.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

MetricPoint point(int64_t step, uint32_t attempt = 1) {
  return {
      .unix_ns = 1'000 * step, .attempt = attempt, .step = step, .loss = 1.0 / double(step + 1)};
}

TEST(MetricHistory, ASampleWithoutANewStepIsNoPoint) {
  MetricHistory history;
  EXPECT_FALSE(history.add(point(-1)));
  EXPECT_TRUE(history.add(point(3)));
  EXPECT_FALSE(history.add(point(3)));
  EXPECT_TRUE(history.add(point(3, 2)));  // made again by the next attempt
  EXPECT_EQ(history.since(0).size(), 2U);
  EXPECT_EQ(history.since(3'000).size(), 0U);
}

TEST(MetricHistory, ALongLifeIsThinnedAndItsEndIsNot) {
  MetricHistory history;
  constexpr int64_t kSteps = 100'000;
  for (int64_t step = 0; step < kSteps; ++step) {
    history.add(point(step));
    ASSERT_LE(history.since(-1).size(), kRecentPoints + kOldPoints) << step;
  }
  const std::vector<MetricPoint> points = history.since(-1);
  EXPECT_GE(points.size(), kRecentPoints + kOldPoints / 2);
  EXPECT_EQ(points.front().step, 0);
  for (size_t i = 1; i < points.size(); ++i) {
    ASSERT_GT(points[i].step, points[i - 1].step) << i;
    // No part of its life is missing.
    ASSERT_LE(points[i].step - points[i - 1].step, 2 * kSteps / int64_t{kOldPoints / 2}) << i;
  }
  for (size_t i = 0; i < kRecentPoints; ++i)
    EXPECT_EQ(points[points.size() - 1 - i].step, kSteps - 1 - static_cast<int64_t>(i));
}

}  // namespace
}  // namespace muster::coordinator
