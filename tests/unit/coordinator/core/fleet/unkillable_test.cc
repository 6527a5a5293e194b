#include "coordinator/core/fleet/unkillable.h"

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::seconds;

constexpr Duration kGrace = seconds(4);
const Instant kOrdered = Instant() + std::chrono::hours(1);

TEST(KillDeadlineWaitsForSaves, AgainAfterANewOrderWithTheSameProgress) {
  const CoreOptions options;
  const SaveProgress written{.total = 100, .written = 100};
  KillDeadline deadline;
  deadline.expect_ends(kGrace, /*waits=*/true, options, kOrdered);
  deadline.extend_for_saves(written, kGrace, options, kOrdered + seconds(1));
  const Instant becomes_durable_by = kOrdered + seconds(1) + save_wait(written, kGrace);
  EXPECT_EQ(deadline.killed_at, becomes_durable_by);
  deadline.extend_for_saves(written, kGrace, options, kOrdered + seconds(2));
  EXPECT_EQ(deadline.killed_at, becomes_durable_by) << "a save without progress extends nothing";

  // A worker registers again and receives the order once more.
  deadline.expect_ends(kGrace, /*waits=*/true, options, kOrdered + seconds(3));
  deadline.extend_for_saves(written, kGrace, options, kOrdered + seconds(4));
  EXPECT_EQ(deadline.killed_at, kOrdered + seconds(4) + save_wait(written, kGrace));
}

// A job that is cancelled while its preempted ranks leave: the order of the preemption stands.
TEST(KillDeadlineWaitsForSaves, OnlyIfTheWorkersDo) {
  const CoreOptions options;
  KillDeadline deadline;
  deadline.expect_ends(kGrace, /*waits=*/false, options, kOrdered);
  deadline.extend_for_saves({.total = 100, .written = 50}, kGrace, options, kOrdered + seconds(1));
  EXPECT_EQ(deadline.killed_at, kOrdered + kGrace);
}

// A job that is cancelled during an outage of the coordinator's network: the time before the order
// does not count.
TEST(KillDeadline, ExcludesNoTimeBeforeTheOrder) {
  const CoreOptions options;
  KillDeadline deadline;
  deadline.expect_ends(kGrace, /*waits=*/false, options, kOrdered);
  deadline.excuse(seconds(505), kOrdered + seconds(5));
  EXPECT_EQ(deadline.killed_at, kOrdered + kGrace + seconds(5));
  EXPECT_EQ(deadline.first_killed_at, kOrdered + kGrace + seconds(5));
  deadline.excuse(seconds(30), kOrdered + seconds(40));
  EXPECT_EQ(deadline.killed_at, kOrdered + kGrace + seconds(35));
}

}  // namespace
}  // namespace muster::coordinator
