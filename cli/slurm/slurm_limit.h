// SIGUSR1, the warning of a near time limit. Slurm sends it as long before the limit as the
// script's --signal states, whatever the limit is.
//
// With `sbatch -t 5` and `#SBATCH --signal=B:USR1@300` in the script, the warning arrives when the
// allocation has hardly begun, in every allocation. If the script's lead is more than half of the
// limit, ranks train on until a quarter of the limit is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/slurm/slurm_job.h"
#include "common/time.h"

namespace muster::cli {

// Returns N of `#SBATCH --signal=B:USR1@N` in a script; 0: the script has none. Pure.
int64_t script_lead_seconds(std::string_view script);

// Returns the seconds for which ranks may continue to train after a SIGUSR1 that the script
// requests `lead_seconds` before the limit. 0: the signal is not early. Pure.
int64_t early_seconds(const SlurmJobState& state, int64_t lead_seconds);

// Not thread-safe.
class LimitWarning {
 public:
  // `job` must outlive it.
  explicit LimitWarning(const SlurmJob& job) : job_(job) {}

  // Called on SIGUSR1. Returns a message if the warning is early; is_due() then reports when ranks
  // must save and exit. Empty: they must do so now. A second signal counts as a user's request.
  std::string on_signal();
  // Returns true once, when the early warning becomes due.
  bool is_due(Instant now);

 private:
  const SlurmJob& job_;
  bool was_signalled_ = false;
  std::optional<Instant> due_;
};

}  // namespace muster::cli
