// The environment variables through which the worker passes a rank its identity in the job.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "common/progress/progress_page.h"

namespace muster::trainer {

// The values of the variables. The defaults, without any variable, are rank 0 of 1 and a progress
// page that no other process reads.
struct RankEnv {
  int32_t rank = 0;               // RANK
  int32_t world_size = 1;         // WORLD_SIZE
  int32_t local_rank = 0;         // LOCAL_RANK
  int32_t local_world_size = 1;   // LOCAL_WORLD_SIZE
  int32_t threads = 0;            // first number of OMP_NUM_THREADS; 0: unset
  uint64_t job = 0;               // MUSTER_JOB
  uint32_t attempt = 0;           // MUSTER_ATTEMPT
  uint64_t incarnation = 0;       // MUSTER_INCARNATION
  uint64_t checkpoint_step = 0;   // MUSTER_CHECKPOINT_STEP, saved by an earlier attempt; 0: none
  bool has_gpus = false;          // rank of a job, and CUDA_VISIBLE_DEVICES is not empty
  std::string progress_page;      // MUSTER_PROGRESS_PAGE; empty: none
  std::string local_checkpoints;  // MUSTER_LOCAL_CHECKPOINTS, folder in memory; empty: unset
  std::string rendezvous;         // MUSTER_RENDEZVOUS, host:port; required if world_size > 1
  std::string bind_address = "127.0.0.1";                        // MUSTER_BIND_ADDRESS
  std::chrono::milliseconds connect_timeout{120'000};            // MUSTER_RENDEZVOUS_TIMEOUT_MS
  std::chrono::milliseconds collective_timeout{10 * 60 * 1000};  // MUSTER_COLLECTIVE_TIMEOUT_MS

  // Returns the identity for the progress page of a training of `total_steps` steps.
  ProgressIdentity identity(int64_t total_steps) const;
};

// Returns the value of a variable; nullopt: unset.
using GetEnv = std::function<std::optional<std::string>(const std::string& name)>;

// Reads the variables. Returns InvalidArgument with the variable, its value and the allowed range.
absl::StatusOr<RankEnv> read_rank_env(const GetEnv& get);
absl::StatusOr<RankEnv> read_rank_env();  // reads this process's environment

}  // namespace muster::trainer
