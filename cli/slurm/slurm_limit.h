// Handles SIGUSR1, Slurm's warning of a near time limit. The batch script's --signal determines how
// long before the limit Slurm sends it, whatever the limit is.
//
// The warning may arrive in every allocation right after its start: it does with `sbatch -t 5` and
// `#SBATCH --signal=B:USR1@300` in the script. If the script's lead (300 s here) is more than half
// of the limit, ranks continue to train until a quarter of the limit is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/slurm/slurm_job.h"
#include "common/time/time.h"

namespace muster::cli {

// Returns N of `#SBATCH --signal=B:USR1@N` in a script; 0 if the script has no such line. Pure.
int64_t script_lead_seconds(std::string_view script);

// Returns the seconds for which ranks may continue to train after SIGUSR1; 0 if the signal is not
// early. `lead_seconds`: the lead that the script requests. Pure.
int64_t early_seconds(const SlurmJobState& state, int64_t lead_seconds);

// The warning in one allocation. Not thread-safe.
class LimitWarning {
 public:
  // Requires that `job` outlives the object.
  explicit LimitWarning(const SlurmJob& job) : job_(job) {}

  // Called on SIGUSR1. Returns a message for the user if the warning is early; is_due() later
  // returns true when ranks must save and exit. Returns "" if they must do so now. A second signal
  // counts as a user's request, and is never early.
  std::string on_signal();
  // Returns true in one call: the first one after the early warning has become due.
  bool is_due(Instant now);

 private:
  const SlurmJob& job_;
  bool was_signalled_ = false;
  std::optional<Instant> due_;
};

}  // namespace muster::cli
