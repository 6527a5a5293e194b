// Refuses jobs that cannot fit in the memory of their GPUs, before they wait in a queue. Jobs of
// `muster run` are checked by the trainer (trainer_core/startup/preflight.h).
#pragma once

#include <cstdint>
#include <functional>
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
  std::string source;    // the end of a sentence: "as the workers of 127.0.0.1:7070 report"
  bool is_known = true;  // false: the nodes' type is unknown, and the largest known one is compared
};

// Adds --no-plan, which omits the check and the prediction.
void add_no_plan_option(CLI::App& command, JobArguments& arguments);

// Returns whether the job's memory per GPU can be planned: the trainer's job, whose ranks have GPUs
// of their own. False with --no-plan.
bool has_gpu_plan(const JobArguments& arguments, const v1::JobSpec& spec);

// Returns the best GPU type that all ranks of the job can get. If the job needs k GPUs per node, a
// worker's type is that of its GPU with the k-th most memory. Workers are sorted by this memory,
// largest first; the spec.nodes()-th worker, or the last one with GPUs, determines the result.
// Returns nullopt if no worker has GPUs. If `topologies` has a device of this name, its figures
// replace the worker's, because a process can allocate less memory than the driver reports. Pure.
std::optional<GpuType> gpu_type_of_workers(const v1::ListWorkersResponse& workers,
                                           const v1::JobSpec& spec,
                                           const std::vector<jobspec::Topology>& topologies,
                                           const std::string& source);

// Returns the type with the most memory among those that `names` denote
// (jobspec/files/topology_names.h). If a name is unknown or there are no names, returns the type
// with the most memory among all `topologies`; nullopt if there are none. A name of a device,
// unlike one of a machine, leaves the network between several nodes open (topology_of_device()).
// `source`: the origin of the names, such as "as Slurm reports". Pure.
std::optional<GpuType> gpu_type_of_names(const std::vector<std::string>& names,
                                         const std::vector<jobspec::Topology>& topologies,
                                         const std::string& source, int32_t nodes);

// Returns whether the ranks may get GPUs on nodes with `gpus_per_node` GPUs (0: none, or unknown).
// With 0, the result is true for hardware=gpu only, because hardware=auto then uses the CPUs.
bool may_have_gpus(const v1::JobSpec& spec, int32_t gpus_per_node);

// Finds the type of a job's GPUs among the known machine types. Returns nullopt if no type is
// available for the check, which is then omitted.
using FindGpuType =
    std::function<absl::StatusOr<std::optional<GpuType>>(const std::vector<jobspec::Topology>&)>;

// Checks the job at each number of nodes that it may run on. Returns InvalidArgument, with the plan
// and config changes that fit, if it does not fit in the memory of its GPUs. The type of the GPUs
// is the config's compile_topology, or the result of `find` if the config has none. Only warns if
// the plan cannot be computed, or if hardware=auto might leave these GPUs unused. Returns OK for
// jobs without a plan (has_gpu_plan()). Requires arguments.is_for_plan. Blocks for some tenths of a
// second; for seconds if the job does not fit. `found`, unless null, receives the type that the job
// is compared with, if it is known.
absl::Status check_gpu_memory(const JobArguments& arguments, const v1::JobSpec& spec,
                              const FindGpuType& find,
                              std::optional<jobspec::Topology>* found = nullptr);

// Returns the device memory of the rank that needs the most on the workers' GPUs; 0 if the job has
// no plan, if no worker has GPUs, or if the memory cannot be computed.
uint64_t planned_gpu_bytes(const v1::JobSpec& spec, const v1::ListWorkersResponse& workers);

}  // namespace muster::cli
