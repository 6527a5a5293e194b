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

TEST(Logging, AnUnknownFormatNamesTheKnownOnes) {
  EXPECT_THAT(std::string(set_up_logging("test", "info", "xml").message()),
              HasSubstr("--log-format=xml: must be text or json"));
}

TEST(Logging, AJsonLineHasItsSubjectAsFields) {
  const auto line = [](std::string_view message) {
    return json_log_line(1'769'860'800'123'456'789, "info", "muster-worker", message);
  };
  const std::string head =
      R"({"time":"2026-01-31T12:00:00.123Z","level":"info","program":"muster-worker","message":)";
  EXPECT_EQ(line("stopped"), head + R"("stopped"})");
  EXPECT_EQ(
      line("job 3 attempt 1 rank 12 ended: exit code 1"),
      head + R"("job 3 attempt 1 rank 12 ended: exit code 1","job":3,"attempt":1,"rank":12})");
  EXPECT_EQ(
      line("job 3 (llama) incident 7: rank 2 on node1 hangs"),
      head + R"("job 3 (llama) incident 7: rank 2 on node1 hangs","job":3,"incident":7,"rank":2})");
  EXPECT_EQ(line("worker node1 is disconnected"),
            head + R"("worker node1 is disconnected","worker":"node1"})");
  EXPECT_EQ(line("job x \xFF"), head + "\"job x \xEF\xBF\xBD\"}") << "bytes that are not UTF-8";
}

}  // namespace
}  // namespace muster::daemon
