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

TEST(Printable, LeavesTextAndReplacesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("plain text", 100), "plain text");
  EXPECT_EQ(printable("Größe → 3 🙂", 100), "Größe → 3 🙂");
  EXPECT_EQ(printable("\x1b[2Jx\r\n\x7f", 100), "?[2Jx???");
  EXPECT_EQ(printable(std::string("a\0b", 3), 100), "a?b");
}

TEST(Printable, InvalidUtf8IsReplacedByteByByte) {
  EXPECT_EQ(printable("\xFF\xC3", 100), "??");
  EXPECT_EQ(printable("\xC0\xAF", 100), "??");
  EXPECT_EQ(printable("ok\xE2\x82", 100), "ok??");
}

TEST(Printable, CutsWithoutSplittingACharacter) {
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("aöö", 4), "aö…");
  EXPECT_EQ(printable("", 0), "");
}

}  // namespace
}  // namespace muster::daemon
