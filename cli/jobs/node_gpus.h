// GPUs per node of machines other than this one, for jobs whose keys leave the number of ranks
// open.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/status.h>

#include "cli/coordinator_target.h"
#include "cli/jobs/job_arguments.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the largest number of GPUs that each of `nodes` nodes has, by the nodes' numbers; with
// fewer nodes that have GPUs, the smallest number of those. 0: no node has GPUs. Pure.
int32_t gpus_of_each(std::vector<int32_t> offered, int32_t nodes);

// Returns the GPUs that each worker offers to ranks: at most one per slot for ranks with
// `gpus_per_rank` GPUs. Only workers to which ranks can be assigned count; excluded ones only if
// there are no others. Pure.
std::vector<int32_t> gpus_of_workers(const v1::ListWorkersResponse& workers, int32_t gpus_per_rank);

// Returns the number of nodes if the ranks of the job are the GPUs of its nodes: a config without
// a number of ranks that leaves an axis at -1 and may use GPUs. Keeps that config in `arguments`.
// Nothing for other jobs, and if the config cannot be loaded, which the caller reports when it
// resolves the job.
std::optional<int32_t> nodes_with_open_ranks(JobArguments& arguments);

// The line that reports the choice, also without GPUs. `where`: the source, such as "the
// workers of 127.0.0.1:7070". Pure.
std::string gpus_sentence(int32_t gpus, int32_t gpus_per_rank, const std::string& where);

// The line for a source without an answer. `why`: such as "sinfo is not installed". Pure.
std::string unknown_gpus_sentence(const std::string& why);

// Returns the coordinator's workers. Repeats the call while the coordinator does not answer, as
// long as a submission is repeated. Blocks signals for that time, because the threads of the call
// would otherwise receive those of later code.
absl::StatusOr<v1::ListWorkersResponse> workers_of_fleet(const CoordinatorTarget& coordinator);

// Sets arguments.node_gpus to the GPUs of the coordinator's workers, if the number of ranks depends
// on them, and prints one line about it. Blocks for some seconds if the coordinator does not
// answer, and returns the error.
absl::Status take_gpus_of_fleet(const CoordinatorTarget& coordinator, JobArguments& arguments);

}  // namespace muster::cli
