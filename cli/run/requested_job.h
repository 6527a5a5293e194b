// Determines the job that `muster run` starts.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "common/process/start_limits.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// A job, and the first line that is printed about it.
struct RequestedJob {
  v1::JobSpec spec;
  std::string headline;
  bool saves = true;  // the job writes checkpoints

  int32_t ranks() const { return spec.nodes() * spec.ranks_per_node(); }
};

// Returns the resources (threads, files, memory) that this program, its daemons and the job's ranks
// require. They are added up because all of them share the limits on threads.
StartNeeds start_needs(const RequestedJob& job);

// Predicts the job on the machines of compile_topology or, on GPUs, on those of this machine, and
// stores the result in the job. Omits the prediction with --no-plan, for GPUs of a run on CPUs, and
// the reverse.
void predict_here(const JobArguments& arguments, jobspec::ResolvedJob& job);

// Resolves the config or the program in `arguments`. Restarts this process under nsys (profiler.h)
// if the config requests a profile and this machine can record one.
absl::StatusOr<RequestedJob> requested_job(const JobArguments& arguments);

}  // namespace muster::cli
