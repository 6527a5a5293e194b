// The device of the runs of train_helpers.h in programs of this folder: the GPU, or the emulated
// one, with a new backend for each rank; the CPU during the life of an OnCpu.
#pragma once

#include <memory>
#include <vector>

#include "trainer_core/comm/nccl_group.h"
#include "trainer_core/ops/backend.h"

namespace muster::trainer {

struct OnCpu {
  OnCpu();
  ~OnCpu();
  OnCpu(const OnCpu&) = delete;
  OnCpu& operator=(const OnCpu&) = delete;
};

// During its life, runs use this NCCL for their collectives.
struct OnNccl {
  explicit OnNccl(NcclOptions options);
  ~OnNccl();
  OnNccl(const OnNccl&) = delete;
  OnNccl& operator=(const OnNccl&) = delete;
};

// During its life, each rank of a run has the next GPU; otherwise all share the first.
struct OnOwnGpus {
  OnOwnGpus();
  ~OnOwnGpus();
  OnOwnGpus(const OnOwnGpus&) = delete;
  OnOwnGpus& operator=(const OnOwnGpus&) = delete;
};

// Returns the backends created since the last call.
std::vector<std::shared_ptr<Backend>> take_devices();

}  // namespace muster::trainer
