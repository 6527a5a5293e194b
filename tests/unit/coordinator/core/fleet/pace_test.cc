#include "coordinator/core/fleet/pace.h"

#include <gtest/gtest.h>

#include "common/job/limits.h"

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Pace, OfASmallFleetIsThatOfTheFlags) {
  const CoreOptions options;
  for (const size_t workers : {0U, 1U, 1'000U, 3'125U}) {
    const Pace pace = pace_of(workers, options);
    EXPECT_EQ(pace.busy, milliseconds(250)) << workers;
    EXPECT_EQ(pace.idle, seconds(1)) << workers;
    EXPECT_EQ(pace.lease, options.worker_lease) << workers;
    EXPECT_LE(pace.spread, milliseconds(1250)) << workers;
  }
}

TEST(Pace, KeepsTheHeartbeatsOfEveryFleetWithinTheBudget) {
  const CoreOptions options;
  for (size_t workers = 1; workers <= kNodesMax; workers += 777) {
    const Pace pace = pace_of(workers, options);
    const double per_second = static_cast<double>(workers) / to_seconds(pace.busy);
    EXPECT_LE(per_second, static_cast<double>(options.heartbeat_budget)) << workers;
    EXPECT_GE(pace.idle, pace.busy) << workers;
    EXPECT_GE(pace.lease, kHeartbeatsPerLease * pace.busy) << workers;
    EXPECT_GE(pace.lease, 2 * pace.spread) << "every worker reconnects within its lease";
  }
  EXPECT_EQ(pace_of(12'500, options).busy, seconds(1));
  EXPECT_EQ(pace_of(12'500, options).lease, options.worker_lease);
  EXPECT_EQ(pace_of(100'000, options).busy, seconds(8));
}

TEST(Pace, FollowsTheFlags) {
  CoreOptions options;
  options.heartbeat_budget = 10;
  options.heartbeat_interval = milliseconds(400);
  options.worker_lease = seconds(2);
  EXPECT_EQ(pace_of(1, options).busy, milliseconds(100));
  const Pace pace = pace_of(42, options);
  EXPECT_EQ(pace.busy, milliseconds(4200));
  EXPECT_EQ(pace.idle, pace.busy);
  EXPECT_EQ(pace.lease, seconds(21));
}

// A worker more or less at a bound changes nothing for all others.
TEST(Pace, RemainsWhileTheSizeVariesAroundABound) {
  const CoreOptions options;
  Pace pace = pace_of(3'125, options);
  EXPECT_EQ(next_pace(pace, 3'125, options), pace);
  pace = next_pace(pace, 3'126, options);
  EXPECT_EQ(pace.busy, milliseconds(500));
  EXPECT_EQ(next_pace(pace, 3'125, options), pace);
  EXPECT_EQ(next_pace(pace, 2'900, options), pace);
  EXPECT_EQ(next_pace(pace, 2'800, options).busy, milliseconds(250));
}

TEST(Pace, GivesALargeFleetTimeToRegisterAfterARestart) {
  EXPECT_EQ(time_to_register(499), Duration::zero());
  EXPECT_EQ(time_to_register(12'500), seconds(25));
}

}  // namespace
}  // namespace muster::coordinator
