#include "common/progress/step_times.h"

#include <limits>

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(StepTimes, AStepIsCountedInTheBucketOfItsDuration) {
  StepTimes times;
  times.add(0.001);
  times.add(0.005);  // a bound belongs to its bucket, as in Prometheus
  times.add(0.006);
  times.add(1000);
  EXPECT_EQ(times.counts[0], 2U);
  EXPECT_EQ(times.counts[1], 1U);
  EXPECT_EQ(times.counts.back(), 1U);
  EXPECT_EQ(times.total(), 4U);
  EXPECT_DOUBLE_EQ(times.seconds, 1000.012);
}

TEST(StepTimes, TimeThatCannotBeIsNoTime) {
  StepTimes times;
  for (const double seconds :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    times.add(seconds);
  }
  EXPECT_EQ(times.counts[0], 3U);
  EXPECT_EQ(times.seconds, 0);
}

TEST(StepTimes, SinceReturnsTheAddedSteps) {
  StepTimes earlier;
  earlier.add(0.5);
  StepTimes later = earlier;
  later.add(0.5);
  later.add(2);
  const auto added = later.since(earlier);
  ASSERT_TRUE(added);
  EXPECT_EQ(added->total(), 2U);
  EXPECT_DOUBLE_EQ(added->seconds, 2.5);
  EXPECT_EQ(later.since(later)->total(), 0U);
  EXPECT_EQ(later.since({})->total(), 3U);
}

TEST(StepTimes, SinceIsEmptyForNoLaterState) {
  StepTimes earlier;
  earlier.add(0.5);
  EXPECT_FALSE(StepTimes().since(earlier));
  StepTimes other;
  other.add(0.001);
  other.add(0.001);
  EXPECT_FALSE(other.since(earlier)) << "more steps, but not of the same counts";
  StepTimes nonsense = earlier;
  for (const double seconds :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    nonsense.seconds = seconds;
    EXPECT_FALSE(nonsense.since(earlier));
  }
}

}  // namespace
}  // namespace muster
