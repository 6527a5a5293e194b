#include "common/process/stop_requests.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

using std::chrono::milliseconds;

TEST(StopRequests, SignalsWithinTheWindowOfTheFirstAreOneRequest) {
  const Instant start = Instant() + std::chrono::hours(1);
  StopRequests requests;
  EXPECT_EQ(requests.count(), 0);
  EXPECT_TRUE(requests.add(start));
  EXPECT_FALSE(requests.add(start + milliseconds(50)));
  EXPECT_FALSE(requests.add(start + kSameStopRequest - milliseconds(1)));
  EXPECT_EQ(requests.count(), 1);
  EXPECT_TRUE(requests.add(start + kSameStopRequest))
      << "the window begins with the first signal: a repeated key cannot extend it";
  EXPECT_FALSE(requests.add(start + kSameStopRequest + milliseconds(50)));
  EXPECT_EQ(requests.count(), 2);
}

}  // namespace
}  // namespace muster
