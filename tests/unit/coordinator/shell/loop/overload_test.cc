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

// A large fleet may always have some lag. It does not prevent the end.
TEST_F(OverloadTest, EndsWhileTheLagStaysBelowTheLimit) {
  for (int second = 0; second < 20; ++second)
    EXPECT_FALSE(at(seconds(second), milliseconds(1900))) << second;
  ASSERT_TRUE(at(seconds(20), seconds(2)));
  EXPECT_TRUE(at(seconds(21), milliseconds(1900)));
  EXPECT_TRUE(at(seconds(22), seconds(2)));
  EXPECT_TRUE(at(seconds(24), milliseconds(1900)));
  EXPECT_FALSE(at(seconds(25), milliseconds(1900))) << "3 s after the last lag of the limit";
}

TEST_F(OverloadTest, ALoopThatIsIdleForLongIsNotOverloaded) {
  ASSERT_TRUE(at(seconds(0), seconds(5)));
  EXPECT_FALSE(at(seconds(100), Duration{}));
  EXPECT_TRUE(at(seconds(101), seconds(3)));
}

}  // namespace
}  // namespace muster::coordinator
