// The job that `muster run` starts.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "common/start_limits.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// The job to run, and the first line printed about it.
struct RequestedJob {
  v1::JobSpec spec;
  std::string headline;
  bool saves = true;  // writes checkpoints

  int32_t ranks() const { return spec.nodes() * spec.ranks_per_node(); }
};

// Returns what this program, its daemons and the ranks need together: they share the limits of
// threads.
StartNeeds start_needs(const RequestedJob& job);

// Resolves a config or a program. Restarts this process under nsys if the config requests a profile
// and this machine can record one.
absl::StatusOr<RequestedJob> requested_job(const JobArguments& arguments);

}  // namespace muster::cli
