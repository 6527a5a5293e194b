// The choice of the backend that a rank computes with: hardware=cpu, gpu or auto.
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
  Hardware hardware;  // the choice: never kAuto
  // A line for the log: "backend: CPU, 8 threads (hardware=auto: …)"; empty for hardware=cpu.
  std::string reason;
};

// Chooses the backend. If hardware=gpu, an error names the key, why there is no GPU, and what to
// do. `given`: a worker has assigned GPUs to this rank, so a missing GPU is a fault of the node,
// not InvalidArgument. A build without GPU support always returns InvalidArgument.
absl::StatusOr<ChosenBackend> choose_backend(Hardware wanted, int32_t threads,
                                             const GpuOptions& options, bool given = false);

// The GPU options of a rank: its GPU, and the file in which the GEMM library stores its algorithms,
// so that a restart uses the same ones.
GpuOptions gpu_options(const TrainConfig& config, const RankEnv& env);

// Prepares ranks on devices. Called by all ranks after check_same_config() and before any rank
// allocates its plan. Checks that the ranks that share a device fit on it (device_room.h), and
// chooses the transport of collectives on device memory: NCCL, or the host's memory if ranks share
// a device or one of them has no NCCL. Rank 0 prints the choice and its reason. Returns the plan's
// memory on the device; null on the CPU. Errors include the group's.
absl::StatusOr<std::shared_ptr<void>> prepare_devices(const TrainConfig& config,
                                                      const TrainContext& context);

}  // namespace muster::trainer
