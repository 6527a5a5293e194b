// Which backend a rank computes with: hardware=cpu, gpu or auto.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank_env.h"
#include "trainer_core/train.h"

namespace muster::trainer {

struct ChosenBackend {
  std::shared_ptr<Backend> backend;
  Hardware hardware;  // which it is: never kAuto
  std::string
      reason;  // a line for people: "backend: CPU, 8 threads (hardware=auto: …)"; empty for hardware=cpu
};

// With hardware=gpu an error names the key and says why there is no GPU, and what would be right.
absl::StatusOr<ChosenBackend> choose_backend(Hardware wanted, int32_t threads,
                                             const GpuOptions& options);

// Of a rank of the config's: its GPU, and where the matrix library keeps what a restart has to do as it was done.
GpuOptions gpu_options(const TrainConfig& config, const RankEnv& env);

// Whether a rank's plan fits the device beside what the backend keeps: ResourceExhausted has the plan's table and says what would make it
// smaller. OK where the memory is the host's, which the preflight judges.
absl::Status check_device_memory(const TrainConfig& config, const Backend& backend, int32_t rank);

// How ranks bring together what lies on their devices, once they are known to have the same config: by NCCL, or through the host's memory
// where they share a device or one of them has no NCCL. Rank 0 says which, and why. All ranks call it; the group's errors.
absl::Status choose_collectives(const TrainContext& context);

}  // namespace muster::trainer
