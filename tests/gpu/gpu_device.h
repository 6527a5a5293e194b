// What the runs of train_helpers.h compute with in a program of this folder: the GPU, or the emulated one, with a new backend for each
// rank; the CPU while an OnCpu lives.
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

// While it lives runs bring their numbers together by this NCCL.
struct OnNccl {
  explicit OnNccl(NcclOptions options);
  ~OnNccl();
  OnNccl(const OnNccl&) = delete;
  OnNccl& operator=(const OnNccl&) = delete;
};

// While it lives each rank of a run has the next GPU; otherwise all share the first.
struct OnOwnGpus {
  OnOwnGpus();
  ~OnOwnGpus();
  OnOwnGpus(const OnOwnGpus&) = delete;
  OnOwnGpus& operator=(const OnOwnGpus&) = delete;
};

// The backends that were made since the last call.
std::vector<std::shared_ptr<Backend>> take_devices();

}  // namespace muster::trainer
