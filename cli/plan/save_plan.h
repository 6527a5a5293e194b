// Writes the saved plan of `muster plan … compiled_trainstep_file=FILE`
// (trainer_core/base/saved_plan.h).
#pragma once

#include <absl/status/status.h>
#include <nlohmann/json.hpp>

#include "jobspec/files/topology.h"
#include "jobspec/resolve.h"

namespace muster::cli {

// Returns InvalidArgument if the job's compiled_trainstep_file names a file that is no saved plan,
// which must not be replaced. OK if it is not set.
absl::Status check_can_save(const jobspec::ResolvedJob& job);

// Writes the plan of a job that fits, atomically, and prints a line about it. Does nothing if
// compiled_trainstep_file is not set. `forecast`: the output of `muster-trainer plan --layouts`.
absl::Status save_plan(const jobspec::ResolvedJob& job, const jobspec::PlannedMachines& machines,
                       const nlohmann::json& forecast);

}  // namespace muster::cli
