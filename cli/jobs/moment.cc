#include "cli/jobs/moment.h"

#include <array>
#include <string_view>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"

namespace muster::cli {
namespace {

constexpr int64_t kMomentNsPerSecond = 1'000'000'000;
constexpr int64_t kSecondsMax = int64_t{10} * 365 * 24 * 3600;

// Returns the seconds of "90s", "30m", "2h" or "7d"; 0: the text has another form.
int64_t seconds_from_now(const std::string& text) {
  constexpr std::string_view kUnits = "smhd";
  constexpr std::array<int64_t, 4> kSeconds = {1, 60, 3600, 86400};
  const size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  int64_t number = 0;
  if (unit == std::string_view::npos ||
      !absl::SimpleAtoi(text.substr(0, text.size() - 1), &number) || number <= 0 ||
      number > kSecondsMax / kSeconds.at(unit))
    return 0;
  return number * kSeconds.at(unit);
}

}  // namespace

absl::StatusOr<int64_t> moment_of(const std::string& text, int64_t now_unix_ns,
                                  absl::TimeZone zone) {
  const absl::Time now = absl::FromUnixNanos(now_unix_ns);
  if (const int64_t seconds = seconds_from_now(text); seconds > 0)
    return now_unix_ns + seconds * kMomentNsPerSecond;
  absl::Time time;
  std::string problem;
  const std::string today = absl::FormatTime("%Y-%m-%dT", now, zone);
  if (absl::ParseTime("%Y-%m-%dT%H:%M", today + text, zone, &time, &problem)) {
    // The next day has the same clock time, also where summer time begins or ends.
    if (time < now)
      time = absl::FromCivil(absl::ToCivilSecond(time, zone) + int64_t{24} * 3600, zone);
  } else if (!absl::ParseTime("%Y-%m-%dT%H:%M:%S", text, zone, &time, &problem) &&
             !absl::ParseTime("%Y-%m-%dT%H:%M", text, zone, &time, &problem)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--at ", printable(text, 64),
                     ": must be a time like 22:30, 2026-12-01T08:00, 30m, 2h or 7d"));
  }
  if (time < now || time > now + absl::Seconds(kSecondsMax))
    return absl::InvalidArgumentError(
        absl::StrCat("--at ", printable(text, 64), ": must be in the future, at most ten years"));
  return absl::ToUnixNanos(time);
}

}  // namespace muster::cli
