// Refuses jobs that cannot fit in the memory of their GPUs, before they wait in a queue. Jobs of
// `muster run` are checked by the trainer (trainer_core/startup/preflight.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/jobs/job_arguments.h"
#include "jobspec/files/topology.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// The type of the GPUs that a job's ranks will get.
struct GpuType {
  jobspec::Topology topology;
  std::string source;  // the end of a sentence: "as the workers of 127.0.0.1:7070 report"
};

// Adds --no-plan, which omits the check.
void add_no_plan_option(CLI::App& command, JobArguments& arguments);

// Returns whether the job's memory per GPU can be planned: the trainer's job, whose ranks have GPUs
// of their own. False with --no-plan.
bool has_gpu_plan(const JobArguments& arguments, const v1::JobSpec& spec);

// The machine types that the job's config can name.
absl::StatusOr<std::vector<jobspec::Topology>> topologies_for(const JobArguments& arguments);

// Returns the type that the config's compile_topology names; nullopt if it names none. Requires
// arguments.is_for_plan.
absl::StatusOr<std::optional<GpuType>> gpu_type_of_config(const JobArguments& arguments);

// Returns the type of the GPUs that the job gets at best: on each worker the largest ones, and of
// the workers the spec.nodes()-th by descending memory, or the last one with GPUs. nullopt: no
// worker has GPUs. `topologies`: their
// figures replace the workers' for devices of the same name, because a process can allocate less
// than the driver's total. Pure.
std::optional<GpuType> gpu_type_of_workers(const v1::ListWorkersResponse& workers,
                                           const v1::JobSpec& spec,
                                           const std::vector<jobspec::Topology>& topologies,
                                           const std::string& source);

// Returns the type with the most memory of those that the names denote
// (jobspec/files/topology_names.h), and of all known types if one of the names is unknown or there
// are no names. `source`: the origin of the names, such as "as Slurm reports". nullopt: no types
// are known. Pure.
std::optional<GpuType> gpu_type_of_names(const std::vector<std::string>& names,
                                         const std::vector<jobspec::Topology>& topologies,
                                         const std::string& source);

// Returns the device memory of the rank that needs the most. Requires has_gpu_plan(). nullopt: the
// memory cannot be computed.
std::optional<uint64_t> gpu_bytes_of(const v1::JobSpec& spec, const GpuType& type);

// Returns whether the ranks get GPUs if each node has `gpus_per_node`, where 0 can also mean that
// the number is unknown: false for hardware=auto, which then uses the CPUs.
bool may_have_gpus(const v1::JobSpec& spec, int32_t gpus_per_node);

// Returns InvalidArgument, with the plan and config changes that fit, if the job does not fit at
// one of its numbers of nodes. Only warns if hardware=auto might leave these GPUs unused, and if
// the plan cannot be computed. Requires has_gpu_plan(). Blocks for some tenths of a second; for
// seconds if the job does not fit.
absl::Status check_gpu_memory(const v1::JobSpec& spec, const GpuType& type);

}  // namespace muster::cli
