// What a program that is not ours needs to find its peers: its place in the world by the names that torchrun, JAX, MaxText and
// Slurm's steps have for it. So scripts that were written for those run unchanged.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker/core/action.h"

namespace muster::worker {

using Variables = std::map<std::string, std::string>;

// Adds them, over whatever is there. InvalidArgument when the launch says no address of rank 0's node.
//
//   torchrun       GROUP_RANK, GROUP_WORLD_SIZE, ROLE_…, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_… (RANK and its like every rank has);
//                  TORCHELASTIC_USE_AGENT_STORE=False: rank 0 itself serves the store
//   Lightning …    NODE_RANK, NNODES
//   JAX, MaxText   JAX_COORDINATOR_ADDRESS, _IP, _PORT, JAX_NUM_PROCESSES, JAX_PROCESS_ID; JAX_LOCAL_DEVICE_IDS
//                  (unless it is there) where it sees GPUs of its peers
//   srun           SLURM_PROCID, … of a worker inside a Slurm job, where the worker's own would be taken for the rank's
absl::Status add_program_variables(const SpawnRank& request, Variables& variables);

// The command with the program's absolute path in front, found with `variables`' PATH. NotFound or PermissionDenied.
absl::StatusOr<std::vector<std::string>> program_arguments(const LaunchSpec& spec,
                                                           const Variables& variables);

}  // namespace muster::worker
