// A job that is planned for machines that this one need not have, and the steps of planning that
// the forms of `muster plan` share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "cli/jobs/job_arguments.h"
#include "jobspec/files/calibration.h"
#include "jobspec/files/topology.h"
#include "jobspec/resolve.h"

namespace muster::cli {

// A job and the machines that it is planned for.
struct PlannedJob {
  jobspec::PlannedMachines machines;
  jobspec::ResolvedJob job;
  // nullopt: none is known for the program on these machines
  std::optional<jobspec::Calibration> calibration = {};
  int32_t planned_slices = 1;       // compile_topology_num_slices
  bool keeps_global_batch = false;  // gives_global_batch()
};

// Returns whether the user, or the model's file, gives the sequences of a step (global_batch_size):
// another mesh or accumulation then has another per_device_batch_size.
bool gives_global_batch(const jobspec::Config& config);

// Resolves a job for the machines of its compile_topology, with the calibration of `program`.
// Returns InvalidArgument or NotFound for a job, topology or program that cannot be planned.
absl::StatusOr<PlannedJob> planned_job(JobArguments arguments, const std::string& program);

struct Planner {
  // Resolves a job for the machines of its compile_topology.
  std::function<absl::StatusOr<PlannedJob>(JobArguments)> resolve;
  // Returns the output of `muster-trainer plan`, without advice.
  std::function<absl::StatusOr<nlohmann::json>(const PlannedJob&)> forecast;
};

}  // namespace muster::cli
