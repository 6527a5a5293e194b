#include "cli/run/shutdown_deadline.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using std::chrono::milliseconds;

const Instant kStart = Instant() + std::chrono::hours(1);

TEST(ShutdownDeadline, WithoutARequestOnlyTheLogsHaveADeadline) {
  ShutdownDeadline time;
  EXPECT_FALSE(time.wait_until());
  EXPECT_FALSE(time.has_passed(kStart));
  EXPECT_EQ(time.stop_grace(kStart), kStopGrace);
  time.job_ended(kStart, false);
  time.job_ended(kStart + milliseconds(100), false);
  EXPECT_EQ(time.wait_until(), kStart + kLogTail);
  EXPECT_EQ(time.stop_grace(kStart + kLogTail), kStopGrace);
}

// One deadline covers a job that ends just in time, logs that never end, and daemons that do not
// stop.
TEST(ShutdownDeadline, HasTheRequestedLength) {
  ShutdownDeadline time(std::chrono::seconds(30));
  time.leave(kStart);
  EXPECT_FALSE(time.has_passed(kStart + std::chrono::seconds(29)));
  EXPECT_TRUE(time.has_passed(kStart + std::chrono::seconds(30)));
}

TEST(ShutdownDeadline, ASaveThatMakesProgressMovesIt) {
  ShutdownDeadline time(kShutdownTime, /*waits_for_saves=*/true);
  time.observe_save({.total = 100, .written = 1}, kStart);
  EXPECT_FALSE(time.wait_until()) << "no request to leave";
  time.leave(kStart);
  time.observe_save({.total = 100, .written = 10}, kStart + std::chrono::seconds(4));
  const Instant stalls = kStart + std::chrono::seconds(4) + kSaveStallMax + kSaveReportTime;
  EXPECT_EQ(time.wait_until(), stalls);
  time.observe_save({.total = 100, .written = 10}, kStart + std::chrono::seconds(9));
  EXPECT_EQ(time.wait_until(), stalls) << "it has made no progress";
  time.observe_save({.total = 100, .written = 100}, kStart + std::chrono::seconds(10));
  EXPECT_GE(time.wait_until(), kStart + kSaveEndMax) << "peers may still write";
  time.observe_save({}, kStart + std::chrono::seconds(11));
  EXPECT_EQ(time.wait_until(), kStart + std::chrono::seconds(11) + kShutdownTime) << "it has ended";
  time.leave_at_once(kStart + std::chrono::seconds(12));
  time.observe_save({.total = 100, .written = 20}, kStart + std::chrono::seconds(12));
  EXPECT_TRUE(time.has_passed(kStart + std::chrono::seconds(12))) << "a second Ctrl-C kills";
}

TEST(ShutdownDeadline, ARequestedTimeIsABoundForSaves) {
  ShutdownDeadline time(std::chrono::seconds(30));
  time.leave(kStart);
  time.observe_save({.total = 100, .written = 10}, kStart + std::chrono::seconds(29));
  EXPECT_EQ(time.wait_until(), kStart + std::chrono::seconds(30));
}

TEST(ShutdownDeadline, OneDeadlineCoversEverything) {
  ShutdownDeadline time;
  time.leave(kStart);
  const Instant deadline = kStart + kShutdownTime;
  EXPECT_LT(kShutdownTime, std::chrono::seconds(5));
  EXPECT_EQ(time.wait_until(), deadline);
  time.leave(kStart + milliseconds(3000));
  EXPECT_EQ(time.wait_until(), deadline) << "a repeated request moves nothing";
  time.job_ended(deadline - milliseconds(300), true);
  EXPECT_EQ(time.wait_until(), deadline);
  EXPECT_FALSE(time.has_passed(deadline - milliseconds(1)));
  EXPECT_TRUE(time.has_passed(deadline));
  EXPECT_EQ(time.stop_grace(deadline - milliseconds(200)), milliseconds(200));
  EXPECT_EQ(time.stop_grace(deadline + milliseconds(10)), milliseconds(0));
}

// `muster run | less`: the end of the logs is not lost while the reader still reads their
// beginning.
TEST(ShutdownDeadline, ASlowReaderExtendsTheLogDeadline) {
  ShutdownDeadline time;
  time.job_ended(kStart, true);
  time.job_ended(kStart + kLogTail, true);
  EXPECT_FALSE(time.has_passed(kStart + kLogTail));
  time.job_ended(kStart + kLogTail + milliseconds(1), false);
  EXPECT_EQ(time.wait_until(), kStart + 2 * kLogTail);
}

TEST(ShutdownDeadline, ARequestDuringTheLogsShortensThem) {
  ShutdownDeadline time;
  time.job_ended(kStart, false);
  time.leave(kStart + milliseconds(100));
  EXPECT_EQ(time.wait_until(), kStart + kLogTail) << "nothing grows longer";
  time.leave_at_once(kStart + milliseconds(200));
  EXPECT_TRUE(time.has_passed(kStart + milliseconds(200)));
  EXPECT_EQ(time.stop_grace(kStart + milliseconds(200)), milliseconds(0));
}

}  // namespace
}  // namespace muster::cli
