// A GPU of a node, as its driver names it: what a worker tells the coordinator. A value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster {

// More than any node has.
constexpr size_t kGpusPerNodeMax = 256;
constexpr size_t kGpuTextBytesMax = 128;  // of a UUID, of a name

struct Gpu {
  int32_t index = 0;   // the driver's own number, nvidia-smi's: by PCI address
  std::string uuid{};  // "GPU-4c5b3a8e-…"
  std::string name{};  // "NVIDIA H100 80GB HBM3"
  uint64_t memory_bytes = 0;
  int32_t numa_node = -1;  // -1: not known

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// Of a job whose ranks have the share of a slot: one where a worker has as many slots as GPUs, all where it has one slot, none where it has more slots.
constexpr int32_t kGpusOfSlot = -1;

// What each rank of a job has to itself on a worker with so many GPUs and slots.
constexpr int32_t gpus_of_rank(int32_t gpus_per_rank, int64_t gpus, int32_t slots) {
  if (gpus_per_rank != kGpusOfSlot) return gpus_per_rank;
  return static_cast<int32_t>(gpus / (slots > 0 ? slots : 1));
}

}  // namespace muster
