#include "daemon/logging.h"

#include <gmock/gmock.h>

#include <string>

#include <gtest/gtest.h>

namespace muster::daemon {
namespace {

using ::testing::HasSubstr;

TEST(Logging, AnUnknownLevelNamesTheKnownOnes) {
  const auto status = set_up_logging("test", "loud");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--log-level=loud"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("warning"));
  for (const char* level : {"trace", "debug", "info", "warning", "error", "off"}) {
    EXPECT_TRUE(set_up_logging("test", level).ok()) << level;
  }
}

}  // namespace
}  // namespace muster::daemon
