// Environment variables through which a user's program finds its peers: the rank, the number of
// ranks and the address of rank 0, under the names that torchrun, JAX, MaxText and Slurm steps use.
// Scripts written for these launchers run unchanged.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "worker/core/action.h"

namespace muster::worker {

using Variables = std::map<std::string, std::string>;

// Adds the following variables to `variables`, and replaces existing values. Returns
// InvalidArgument if the launch lacks the address of rank 0's node.
//
//  torchrun       GROUP_RANK, GROUP_WORLD_SIZE, ROLE_…, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_…
//                 (RANK and similar: every rank has them);
//                 TORCHELASTIC_USE_AGENT_STORE=False: rank 0 itself serves the store
//  Lightning …    NODE_RANK, NNODES
//  JAX, MaxText   JAX_COORDINATOR_ADDRESS, _IP, _PORT, JAX_NUM_PROCESSES, JAX_PROCESS_ID;
//                 JAX_LOCAL_DEVICE_IDS (unless set) if it sees GPUs of its peers
//  srun           SLURM_PROCID, … of a worker inside a Slurm job: the worker's own values would be
//                 taken for the rank's
absl::Status add_program_variables(const SpawnRank& request, Variables& variables);

// Returns the command line of the job's program. Its first word is the program's absolute path,
// found by the PATH in `variables`. Returns NotFound or PermissionDenied if there is no such
// program or it is not executable.
absl::StatusOr<std::vector<std::string>> program_arguments(const JobSpec& spec,
                                                           const Variables& variables);

}  // namespace muster::worker
