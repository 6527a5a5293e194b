#include "cli/slurm/slurm_limit.h"

#include <algorithm>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

#include "cli/slurm/slurm_commands.h"
#include "common/text/absl_view.h"

namespace muster::cli {
namespace {

// Slurm may send the signal a minute early, and checks the time every 30 s.
constexpr int64_t kAheadSeconds = 90;

int64_t remaining_seconds(const SlurmJobState& state) {
  return std::max<int64_t>(*state.limit_seconds - state.run_seconds.value_or(0), 0);
}

}  // namespace

int64_t script_lead_seconds(std::string_view script) {
  constexpr std::string_view kOption = "--signal=B:USR1@";
  int64_t lead = 0;
  for (const absl::string_view line : absl::StrSplit(av(script), '\n')) {
    if (line.empty()) continue;
    if (line.front() != '#') break;  // sbatch stops reading options here
    const size_t at = line.find(av(kOption));
    if (!absl::StartsWith(line, "#SBATCH") || at == absl::string_view::npos) continue;
    const absl::string_view number = line.substr(at + kOption.size());
    int64_t seconds = 0;
    if (absl::SimpleAtoi(number.substr(0, number.find_first_not_of("0123456789")), &seconds))
      lead = seconds;
  }
  return lead;
}

int64_t early_seconds(const SlurmJobState& state, int64_t lead_seconds) {
  if (!state.limit_seconds || lead_seconds <= *state.limit_seconds / 2) return 0;
  const int64_t left = remaining_seconds(state);
  if (left > lead_seconds + kAheadSeconds) return 0;  // not the signal of the time limit
  return std::max<int64_t>(left - *state.limit_seconds / 4, 0);
}

std::string LimitWarning::on_signal() {
  due_.reset();
  if (std::exchange(was_signalled_, true)) return "";
  const SlurmJobState state = query_slurm_job(job_);
  if (!state.limit_seconds || 2 * remaining_seconds(state) <= *state.limit_seconds) return "";
  const int64_t lead = script_lead_seconds(query_slurm_script(job_));
  const int64_t early = early_seconds(state, lead);
  if (early == 0) return "";
  due_ = monotonic_now() + std::chrono::seconds(early);
  return absl::StrCat("SIGUSR1 arrived ", remaining_seconds(state), " s before the time limit of ",
                      *state.limit_seconds, " s, because the script has --signal=B:USR1@", lead,
                      ": ranks train on until a quarter of the limit is left. To set this lead, "
                      "use sbatch --signal=B:USR1@",
                      *state.limit_seconds / 4,
                      "; another SIGUSR1 makes the ranks save and leave immediately");
}

bool LimitWarning::is_due(Instant now) {
  if (!due_ || now < *due_) return false;
  due_.reset();
  return true;
}

}  // namespace muster::cli
