// Which backend a rank computes with: hardware=cpu, gpu or auto.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {

struct ChosenBackend {
  std::shared_ptr<Backend> backend;
  Hardware hardware;  // which it is: never kAuto
  std::string
      reason;  // a line for people: "backend: CPU, 8 threads (hardware=auto: …)"; empty for hardware=cpu
};

// With hardware=gpu an error names the key and says why there is no GPU, and what would be right. `given`: a worker has GPUs for this rank, so
// that one that is not there is its node's trouble; else InvalidArgument. Of a build that can use none it is InvalidArgument in any case.
absl::StatusOr<ChosenBackend> choose_backend(Hardware wanted, int32_t threads,
                                             const GpuOptions& options, bool given = false);

// Of a rank of the config's: its GPU, and where the matrix library keeps what a restart has to do as it was done.
GpuOptions gpu_options(const TrainConfig& config, const RankEnv& env);

// For ranks on devices, once they are known to have the same config and before any of them has its plan's memory: whether those that share a
// device have room on it (device_room.h), and how they bring together what lies there: by NCCL, or through the host's memory where they
// share a device or one of them has no NCCL. Rank 0 says which, and why. Returns the plan's memory on the device; null on the CPU. All ranks
// call it; the group's errors, too.
absl::StatusOr<std::shared_ptr<void>> prepare_devices(const TrainConfig& config,
                                                      const TrainContext& context);

}  // namespace muster::trainer
