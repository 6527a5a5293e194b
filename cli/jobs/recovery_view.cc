#include "cli/jobs/recovery_view.h"

#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"
#include "daemon/json/incident_json.h"

namespace muster::cli {
namespace {

constexpr std::string_view kFirstMoment = "last progress";

double seconds_between(int64_t from, int64_t to) { return static_cast<double>(to - from) / 1e9; }

std::string seconds_text(double seconds) {
  constexpr double kTenthsBelow = 100;
  return seconds < kTenthsBelow ? absl::StrFormat("%.1fs", seconds) : format_duration(seconds);
}

std::string outcome_of(const v1::Recovery& recovery) {
  if (recovery.interrupted_by() != 0)
    return absl::StrCat("recovery was interrupted by incident ", recovery.interrupted_by());
  if (daemon::steps_lost(recovery) < 0) return "";
  return absl::StrCat(
      "resumed from step ", recovery.restored_step(), " of ", recovery.best_step(), ": ",
      daemon::steps_lost(recovery), " made again",
      recovery.attempts() > 1 ? absl::StrCat("; ", recovery.attempts(), " attempts") : "");
}

}  // namespace

std::vector<std::string> describe_recovery(const v1::Incident& incident) {
  if (!incident.has_recovery()) return {};
  const v1::Recovery& recovery = incident.recovery();
  std::string line = "recovery: last progress";
  for (const daemon::RecoveryMoment& moment : daemon::moments_of(recovery)) {
    if (moment.unix_ns == 0 || moment.name == kFirstMoment) continue;
    absl::StrAppend(&line, " -> ", av(moment.name), " ",
                    seconds_text(seconds_between(recovery.progress_unix_ns(), moment.unix_ns)));
  }
  std::vector<std::string> lines = {line};
  if (const std::string outcome = outcome_of(recovery); !outcome.empty()) lines.push_back(outcome);
  return lines;
}

std::string time_to_recover(const v1::Incident& incident) {
  const v1::Recovery& recovery = incident.recovery();
  if (recovery.first_step_unix_ns() == 0) return "-";
  return seconds_text(seconds_between(recovery.progress_unix_ns(), recovery.first_step_unix_ns()));
}

}  // namespace muster::cli
