#include "coordinator/shell/loop/overload.h"

#include <chrono>

#include <gtest/gtest.h>

namespace muster::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OverloadTest : public testing::Test {
 protected:
  bool at(Duration time, Duration lag) { return overload_.observe(lag, begin_ + time); }

  const Instant begin_ = Instant(seconds(1000));
  Overload overload_{{.lag = seconds(2), .calm = seconds(3)}};
};

TEST_F(OverloadTest, BeginsAtTheLimit) {
  EXPECT_FALSE(at(seconds(0), Duration{}));
  EXPECT_FALSE(at(seconds(1), milliseconds(1999)));
  EXPECT_TRUE(at(seconds(2), seconds(2)));
  EXPECT_TRUE(absl::IsResourceExhausted(overload_.refusal()));
}

TEST_F(OverloadTest, EndsOnceTheLagWasSmallForAWhile) {
  ASSERT_TRUE(at(seconds(0), seconds(5)));
  EXPECT_TRUE(at(seconds(1), milliseconds(100)));
  EXPECT_TRUE(at(milliseconds(2999), Duration{}));
  EXPECT_FALSE(at(seconds(3), Duration{}));
}

// A lag between half the limit and the limit neither begins nor ends it.
TEST_F(OverloadTest, HasHysteresis) {
  for (int second = 0; second < 20; ++second)
    EXPECT_FALSE(at(seconds(second), milliseconds(1500))) << second;
  ASSERT_TRUE(at(seconds(20), seconds(2)));
  for (int second = 21; second < 40; ++second)
    EXPECT_TRUE(at(seconds(second), milliseconds(1500))) << second;
  EXPECT_TRUE(at(seconds(41), milliseconds(900)));
  EXPECT_FALSE(at(seconds(42), milliseconds(900))) << "3 s after the last lag of half the limit";
}

TEST_F(OverloadTest, ALoopThatIsIdleForLongIsNotOverloaded) {
  ASSERT_TRUE(at(seconds(0), seconds(5)));
  EXPECT_FALSE(at(seconds(100), Duration{}));
  EXPECT_TRUE(at(seconds(101), seconds(3)));
}

}  // namespace
}  // namespace muster::coordinator
