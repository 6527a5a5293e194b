// Starts a job from the saved plan of its compiled_trainstep_file (trainer_core/base/saved_plan.h).
#pragma once

#include <absl/status/statusor.h>

#include "jobspec/config.h"
#include "jobspec/resolve.h"

namespace muster::cli {

// Returns whether the config names a saved plan.
bool has_saved_plan(const jobspec::Config& config);

// Reads the plan and resolves the job with its choices: the number of nodes and ranks, the hardware
// and dtype, unless the user has set them. So neither GPUs are counted nor the CPU's speed is
// measured. Returns InvalidArgument for a file that is no valid plan and, with the first difference
// and both values, if the job is not the plan's. Requires has_saved_plan(config).
absl::StatusOr<jobspec::ResolvedJob> resolve_with_plan(jobspec::Config config,
                                                       const jobspec::LaunchOptions& options);

}  // namespace muster::cli
