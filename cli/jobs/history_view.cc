#include "cli/jobs/history_view.h"

#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/time/time.h>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "daemon/json/job_json.h"

namespace muster::cli {
namespace {

constexpr double kHistoryNsPerSecond = 1e9;
// The end of an attempt is the last column, so that it needs no limit.
constexpr size_t kNodesColumns = 32;

std::string start_of(const v1::JobAttempt& attempt) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(attempt.started_unix_ns()),
                          absl::UTCTimeZone());
}

std::string time_between(int64_t from_unix_ns, int64_t to_unix_ns) {
  if (from_unix_ns == 0 || to_unix_ns == 0) return "-";
  return format_duration(static_cast<double>(to_unix_ns - from_unix_ns) / kHistoryNsPerSecond);
}

std::string steps_of(const v1::JobAttempt& attempt) {
  if (attempt.last_step() < 0) return "-";
  const std::string last = absl::StrCat(attempt.last_step());
  return attempt.first_step() < 0 ? absl::StrCat("? to ", last)
                                  : absl::StrCat(attempt.first_step(), " to ", last);
}

std::string end_of(const v1::JobAttempt& attempt) {
  if (attempt.ended_unix_ns() == 0) return "(it has not ended)";
  if (attempt.incident_id() == 0) return attempt.end();
  return absl::StrCat("incident ", attempt.incident_id(), ": ", attempt.end());
}

}  // namespace

std::string describe_history(const v1::GetJobHistoryResponse& history, int64_t now_unix_ns,
                             size_t columns_max) {
  if (history.attempts_size() == 0) return "no attempt was started\n";
  std::vector<std::vector<std::string>> rows = {{"ATTEMPT", "STARTED (UTC)", "ALL UP", "LASTED",
                                                 "RANKS", "NODES", "REV", "STEPS", "LOST", "END"}};
  for (int i = 0; i < history.attempts_size(); ++i) {
    const v1::JobAttempt& attempt = history.attempts(i);
    const int64_t lost = daemon::steps_lost(history, i);
    const int64_t end = attempt.ended_unix_ns() == 0 ? now_unix_ns : attempt.ended_unix_ns();
    rows.push_back({absl::StrCat(attempt.attempt()), start_of(attempt),
                    time_between(attempt.started_unix_ns(), attempt.up_unix_ns()),
                    time_between(attempt.started_unix_ns(), end), absl::StrCat(attempt.ranks()),
                    shorten(attempt.workers(), kNodesColumns),
                    attempt.revision() == 0 ? "-" : absl::StrCat(attempt.revision()),
                    steps_of(attempt), lost < 0 ? "-" : absl::StrCat(lost), end_of(attempt)});
  }
  std::string text;
  for (const absl::string_view line : absl::StrSplit(format_table(rows), '\n', absl::SkipEmpty()))
    absl::StrAppend(&text, av(shorten(sv(line), columns_max)), "\n");
  if (history.more())
    absl::StrAppend(&text, "there are earlier attempts: --limit N shows up to 1000\n");
  return text;
}

}  // namespace muster::cli
