// Chooses the backend of a rank for hardware=cpu, gpu or auto.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/startup/rank_env.h"

namespace muster::trainer {

// The choice.
struct ChosenBackend {
  std::shared_ptr<Backend> backend;
  Hardware hardware;  // kCpu or kGpu
  // A line for the log, such as "backend: CPU, 8 threads (hardware=auto: …)"; empty for
  // hardware=cpu.
  std::string reason;
};

// Chooses and opens the backend. If hardware=gpu and there is no GPU, the error contains the key,
// the reason and what to do. `given` states that a worker has assigned a GPU to this rank; a
// missing GPU is then a fault of the node, so the error is not InvalidArgument. A build without GPU
// support always returns InvalidArgument for hardware=gpu.
absl::StatusOr<ChosenBackend> choose_backend(Hardware wanted, int32_t threads,
                                             const GpuOptions& options, bool given = false);

// Chooses the backend of the option --hardware of a command that generates text with the model of
// `config`. `backend` is null for the CPU, whose ranks open their own. If `tensor_ranks` processes
// divide the model, `auto` is the CPU, and `gpu` an error. Returns InvalidArgument for an unknown
// value, and the errors of choose_backend() with the option's words.
absl::StatusOr<ChosenBackend> backend_of_option(const std::string& hardware, TrainConfig config,
                                                int32_t threads, int32_t tensor_ranks);

// Returns the GPU options of a rank: its GPU, and the file that stores the GEMM library's choice of
// algorithms, so that a restart uses the same algorithms.
GpuOptions gpu_options(const TrainConfig& config, const RankEnv& env);

// Prepares the device of this rank and returns the device memory of its plan; null on the CPU.
// Called by all ranks, after check_same_config() and before any rank allocates its plan. Checks
// that the ranks that share a device fit on it (device_room.h). Selects how collectives transfer
// device memory: by NCCL, or through host memory if ranks share a device or a rank has no NCCL.
// Rank 0 prints the choice and its reason. Also returns the errors of the groups.
absl::StatusOr<std::shared_ptr<void>> prepare_devices(const TrainConfig& config,
                                                      const TrainContext& context);

}  // namespace muster::trainer
