// Selects the device on which the test programs of this folder run the trainer (train_helpers.h).
// By default each rank has a new backend on the GPU or on the emulated device.
#pragma once

#include <memory>
#include <vector>

#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

// During its life, ranks run on the CPU.
struct OnCpu {
  OnCpu();
  ~OnCpu();
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;
};

// During its life, ranks use this NCCL for their collectives.
struct OnNccl {
  explicit OnNccl(NcclOptions options);
  ~OnNccl();
  OnNccl(const OnNccl&) = delete;
  OnNccl& operator=(const OnNccl&) = delete;
};

// During its life, each rank of a run has a GPU of its own; otherwise all ranks share the first
// GPU.
struct OnOwnGpus {
  OnOwnGpus();
  ~OnOwnGpus();
  OnOwnGpus(const OnOwnGpus&) = delete;
  OnOwnGpus& operator=(const OnOwnGpus&) = delete;
};

// Returns the backends that were created since the last call.
std::vector<std::shared_ptr<Backend>> take_devices();

}  // namespace muster::trainer
