// SIGUSR1, the word for a time limit that is near, which Slurm sends so long before as a script's --signal says, whatever the limit is.
//
// With `sbatch -t 5` and a script's own `#SBATCH --signal=B:USR1@300` it comes when the turn has hardly begun, and so would each later turn end.
// Where the script's lead is more than half of the limit, ranks train on until a quarter of the limit is left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cli/slurm/slurm_job.h"
#include "common/time.h"

namespace muster::cli {

// N of a script's `#SBATCH --signal=B:USR1@N`; 0: it says none. Pure.
int64_t script_lead_seconds(std::string_view script);

// How long a job may train on after a SIGUSR1 that came because of that lead; 0: it is not early. Pure.
int64_t early_seconds(const SlurmJobState& state, int64_t lead_seconds);

// Of one thread.
class LimitWarning {
 public:
  // `job` outlives it.
  explicit LimitWarning(const SlurmJob& job) : job_(job) {}

  // SIGUSR1 has come. What to say of one that is early, and due later; empty: it is time to leave. A second one is somebody's own.
  std::string hear();
  // The early one's time has come. True once.
  bool is_due(Instant now);

 private:
  const SlurmJob& job_;
  bool was_heard_ = false;
  std::optional<Instant> due_;
};

}  // namespace muster::cli
