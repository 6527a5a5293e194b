#include "cli/jobs/recovery_view.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_replace.h>

#include "cli/terminal/terminal.h"
#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kFirstMoment = "last progress";

struct Moment {
  std::string_view name;
  int64_t unix_ns = 0;
};

std::array<Moment, 10> moments_of(const v1::Recovery& recovery) {
  return {{{kFirstMoment, recovery.progress_unix_ns()},
           {"detected", recovery.detected_unix_ns()},
           {"evidence", recovery.evidence_unix_ns()},
           {"decided", recovery.decided_unix_ns()},
           {"stopped", recovery.stopped_unix_ns()},
           {"started", recovery.started_unix_ns()},
           {"up", recovery.up_unix_ns()},
           {"loaded", recovery.loaded_unix_ns()},
           {"first step", recovery.first_step_unix_ns()},
           {"caught up", recovery.caught_up_unix_ns()}}};
}

double seconds_between(int64_t from, int64_t to) { return static_cast<double>(to - from) / 1e9; }

std::string seconds_text(double seconds) {
  constexpr double kTenthsBelow = 100;
  return seconds < kTenthsBelow ? absl::StrFormat("%.1fs", seconds) : format_duration(seconds);
}

int64_t steps_lost(const v1::Recovery& recovery) {
  if (recovery.best_step() < 0 || recovery.restored_step() < 0) return -1;
  return std::max<int64_t>(recovery.best_step() - recovery.restored_step(), 0);
}

std::string outcome_of(const v1::Recovery& recovery) {
  if (recovery.interrupted_by() != 0)
    return absl::StrCat("recovery was interrupted by incident ", recovery.interrupted_by());
  if (steps_lost(recovery) < 0) return "";
  return absl::StrCat(
      "resumed from step ", recovery.restored_step(), " of ", recovery.best_step(), ": ",
      steps_lost(recovery), " made again",
      recovery.attempts() > 1 ? absl::StrCat("; ", recovery.attempts(), " attempts") : "");
}

}  // namespace

std::vector<std::string> describe_recovery(const v1::Incident& incident) {
  if (!incident.has_recovery()) return {};
  const v1::Recovery& recovery = incident.recovery();
  std::string line = "recovery: last progress";
  for (const Moment& moment : moments_of(recovery)) {
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

json recovery_to_json(const v1::Incident& incident) {
  if (!incident.has_recovery()) return nullptr;
  const v1::Recovery& recovery = incident.recovery();
  json out = {{"over", recovery.over()},
              {"attempts", recovery.attempts()},
              {"best_step", recovery.best_step()},
              {"restored_step", recovery.restored_step()},
              {"steps_lost", steps_lost(recovery)},
              {"interrupted_by", recovery.interrupted_by()}};
  for (const Moment& moment : moments_of(recovery)) {
    if (moment.unix_ns == 0) continue;
    const std::string name = absl::StrReplaceAll(av(moment.name), {{" ", "_"}});
    out[name + "_unix_ns"] = moment.unix_ns;
  }
  return out;
}

}  // namespace muster::cli
