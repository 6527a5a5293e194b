#include "trainer_core/checkpoint/visible.h"

#include <gmock/gmock.h>

#include <chrono>
#include <sstream>

#include <gtest/gtest.h>

namespace muster::trainer {
namespace {

TEST(Visible, WaitsUntilVisible) {
  int reads = 0;
  const absl::Status status = when_visible([&] {
    return ++reads < 4 ? not_visible_yet(absl::DataLossError("it has no a")) : absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(reads, 4);
}

TEST(Visible, ReportsDamageAfterTheWait) {
  int reads = 0;
  const absl::Status status = when_visible(
      [&] {
        ++reads;
        return not_visible_yet(absl::DataLossError("it has no a"));
      },
      std::chrono::milliseconds(50));
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_EQ(status.message(), "it has no a, after 0.05 seconds in which it could become visible");
  EXPECT_GE(reads, 2);
}

TEST(Visible, StatesOnceWhatIsAwaited) {
  std::ostringstream log;
  const auto wait = [&](Duration silence) {
    int reads = 0;
    return when_visible(
        [&] {
          return ++reads < 5 ? not_visible_yet(absl::DataLossError("it has no a"))
                             : absl::OkStatus();
        },
        kVisibleWithin, silence, log);
  };
  EXPECT_TRUE(wait(kVisibleWithin).ok());
  EXPECT_EQ(log.str(), "");
  EXPECT_TRUE(wait(Duration::zero()).ok());
  EXPECT_EQ(log.str(),
            "waiting for a checkpoint of other ranks to become visible here: it has no a\n");
}

TEST(Visible, OtherErrorsAreNotWaitedFor) {
  int reads = 0;
  const absl::Status status = when_visible([&] {
    ++reads;
    return absl::DataLossError("a is damaged");
  });
  EXPECT_EQ(status, absl::DataLossError("a is damaged"));
  EXPECT_EQ(reads, 1);
}

}  // namespace
}  // namespace muster::trainer
