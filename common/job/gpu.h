// A GPU of a node as its driver identifies it; the worker reports it to the coordinator. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster {

// The maximum number of GPUs of a node, above that of any existing node.
constexpr size_t kGpusPerNodeMax = 256;
// The maximum size of `uuid`, and of `name`.
constexpr size_t kGpuTextBytesMax = 128;

struct Gpu {
  // the driver's index, by PCI address, as nvidia-smi shows it
  int32_t index = 0;
  std::string uuid{};  // "GPU-4c5b3a8e-…"
  std::string name{};  // "NVIDIA H100 80GB HBM3"
  uint64_t memory_bytes = 0;
  // -1: unknown
  int32_t numa_node = -1;

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// The value of gpus_per_rank for jobs whose ranks get the GPUs of one slot: one GPU if the worker
// has as many slots as GPUs, all GPUs if it has one slot, no GPU if it has more slots than GPUs.
constexpr int32_t kGpusOfSlot = -1;

// Returns the number of GPUs that each rank of a job gets exclusively on a worker with `gpus` GPUs
// and `slots` slots.
constexpr int32_t gpus_of_rank(int32_t gpus_per_rank, int64_t gpus, int32_t slots) {
  if (gpus_per_rank != kGpusOfSlot) return gpus_per_rank;
  return static_cast<int32_t>(gpus / (slots > 0 ? slots : 1));
}

}  // namespace muster
