// Values of a worker's heartbeat, and their conversion for the core.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "coordinator/shell/job_and_worker_messages.h"

namespace muster::coordinator {
namespace {

TEST(HeartbeatFromProto, NonFiniteAndHugeNumbersAreSanitised) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  v1::Heartbeat heartbeat;
  for (const int64_t age :
       {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(), int64_t{5}}) {
    v1::RankProgress& rank = *heartbeat.add_ranks();
    rank.set_last_progress_age_ns(age);
    rank.set_loss(kNan);
    rank.set_tokens_per_second(kNan);
    rank.set_step_seconds(-kInfinity);
    rank.set_tflops_per_device(kInfinity);
    rank.set_device_peak_tflops(312);
  }
  const HeartbeatReceived event = heartbeat_from_proto(heartbeat);
  ASSERT_EQ(event.ranks.size(), 3U);
  EXPECT_EQ(event.ranks[0].last_progress_age, Duration::zero());
  EXPECT_EQ(event.ranks[1].last_progress_age, std::chrono::hours(365 * 24));
  EXPECT_EQ(event.ranks[2].last_progress_age, Duration(5));
  EXPECT_EQ(event.ranks[0].tokens_per_second, 0);
  EXPECT_EQ(event.ranks[0].step_seconds, 0);
  EXPECT_EQ(event.ranks[0].tflops_per_device, 0);
  EXPECT_EQ(event.ranks[0].device_peak_tflops, 312);
  EXPECT_TRUE(std::isnan(event.ranks[0].loss)) << "users must see a NaN loss";
}

TEST(LeavingFromProto, GraceIsClamped) {
  v1::Leaving leaving;
  const auto grace = [&](int64_t ms) {
    leaving.set_grace_ms(ms);
    return leaving_from_proto(leaving).grace;
  };
  EXPECT_EQ(grace(2'500), std::chrono::milliseconds(2'500));
  EXPECT_EQ(grace(-1), Duration::zero());
  EXPECT_EQ(grace(std::numeric_limits<int64_t>::max()), std::chrono::hours(24));
}

}  // namespace
}  // namespace muster::coordinator
