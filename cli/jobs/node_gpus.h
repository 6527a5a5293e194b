// GPUs per node of machines other than this one, for jobs whose keys leave the number of ranks
// open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "cli/client.h"
#include "cli/coordinator_target.h"
#include "cli/jobs/job_arguments.h"
#include "muster/v1/muster.pb.h"

namespace muster::cli {

// Returns the number of GPUs that a job can use on every one of its `nodes` nodes: the `nodes`-th
// largest number in `offered`, which has the GPUs of each node of the fleet. If fewer nodes have
// GPUs, returns the smallest number among them; 0 if no node has GPUs. Pure.
int32_t gpus_on_every_node(std::vector<int32_t> offered, int32_t nodes);

// Returns the GPUs that each worker offers to ranks: at most one per slot for ranks with
// `gpus_per_rank` GPUs. Only workers to which ranks can be assigned count; excluded ones only if
// there are no others. Pure.
std::vector<int32_t> gpus_of_workers(const v1::ListWorkersResponse& workers, int32_t gpus_per_rank);

// Returns the number of nodes of a job that gets one rank per GPU: its config gives no number of
// ranks, has a mesh axis of -1, and may use GPUs. Stores the loaded config in `arguments`. Returns
// nullopt for other jobs, and if the config cannot be loaded; the caller reports that error when it
// resolves the job.
std::optional<int32_t> nodes_with_open_ranks(JobArguments& arguments);

// Returns the line that reports the number of ranks per node and the GPUs from which it follows,
// which may be 0. `where`: the source, such as "the workers of 127.0.0.1:7070". Pure.
std::string gpus_sentence(int32_t gpus, int32_t gpus_per_rank, const std::string& where);

// Returns the line for GPUs that are unknown. `why`: the reason, such as "sinfo is not installed".
// Pure.
std::string unknown_gpus_sentence(const std::string& why);

// The workers of a coordinator, which are fetched once, when they are first needed: the list of a
// large fleet has megabytes.
class FleetWorkers {
 public:
  explicit FleetWorkers(CoordinatorTarget coordinator) : coordinator_(std::move(coordinator)) {}

  const CoordinatorTarget& coordinator() const { return coordinator_; }
  // Returns the workers, or the error of the first call. The first call is repeated while the
  // coordinator does not answer, as long as a submission is repeated. Blocks signals for that time,
  // because the threads of the call would otherwise receive those of later code.
  const absl::StatusOr<v1::ListWorkersResponse>& get();
  // The same with the caller's connection and without repetitions.
  const absl::StatusOr<v1::ListWorkersResponse>& get(Client& client);

 private:
  const CoordinatorTarget coordinator_;
  std::optional<absl::StatusOr<v1::ListWorkersResponse>> workers_;
};

// Sets arguments.node_gpus to the GPUs of the fleet's workers, if the number of ranks depends
// on them, and prints one line about it. Blocks for some seconds if the coordinator does not
// answer, and returns the error.
absl::Status take_gpus_of_fleet(FleetWorkers& fleet, JobArguments& arguments);

}  // namespace muster::cli
