#include "daemon/grpc_deadline.h"

#include <chrono>

#include <gtest/gtest.h>

namespace muster::daemon {
namespace {

TEST(GrpcDeadline, IsTheSameClockAsOurs) {
  const gpr_timespec before = gpr_now(GPR_CLOCK_MONOTONIC);
  const gpr_timespec now = grpc_deadline(monotonic_now());
  const gpr_timespec after = gpr_now(GPR_CLOCK_MONOTONIC);
  EXPECT_EQ(now.clock_type, GPR_CLOCK_MONOTONIC);
  EXPECT_LE(gpr_time_cmp(before, now), 0);
  EXPECT_LE(gpr_time_cmp(now, after), 0);
}

TEST(GrpcDeadline, KeepsNanoseconds) {
  const gpr_timespec time = grpc_deadline(instant_from_ns(3'000'000'007));
  EXPECT_EQ(time.tv_sec, 3);
  EXPECT_EQ(time.tv_nsec, 7);
}

}  // namespace
}  // namespace muster::daemon
