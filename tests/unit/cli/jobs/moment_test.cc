#include "cli/jobs/moment.h"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(Moment, IsAClockTimeADateOrATimeFromNowOn) {
  absl::TimeZone zone = absl::FixedTimeZone(3600);
  const auto ns = [&](const char* text) {
    absl::Time time;
    std::string problem;
    EXPECT_TRUE(absl::ParseTime("%Y-%m-%dT%H:%M:%S", text, zone, &time, &problem)) << problem;
    return absl::ToUnixNanos(time);
  };
  const int64_t now = ns("2026-11-30T21:15:00");
  const auto moment = [&](const char* text) {
    const auto found = moment_of(text, now, zone);
    EXPECT_TRUE(found.ok()) << text << ": " << found.status();
    return found.value_or(0);
  };
  EXPECT_EQ(moment("22:30"), ns("2026-11-30T22:30:00"));
  EXPECT_EQ(moment("08:00"), ns("2026-12-01T08:00:00")) << "today it is over";
  EXPECT_EQ(moment("2026-12-01T08:00"), ns("2026-12-01T08:00:00"));
  EXPECT_EQ(moment("2026-12-01T08:00:30"), ns("2026-12-01T08:00:30"));
  EXPECT_EQ(moment("90s"), ns("2026-11-30T21:16:30"));
  EXPECT_EQ(moment("7d"), ns("2026-12-07T21:15:00"));
  for (const char* text : {"", "noon", "0m", "-5m", "25:00", "2026-11-30T21:00", "9999-01-01T00:00",
                           "2026-13-01T08:00", "99999999999999d"})
    EXPECT_FALSE(moment_of(text, now, zone).ok()) << text;
}

}  // namespace
}  // namespace muster::cli
