// Estimates of the GPU memory that a rank needs in addition to its plan, from documented or typical
// figures. The driver and libraries allocate this memory when they are first used, so a plan that
// leaves no room for it would fail in the first step.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// A use of such memory and its size.
struct DeviceReserve {
  std::string_view name;
  size_t bytes = 0;
};
// Returns the total bytes.
size_t sum_of(std::span<const DeviceReserve> reserves);

// The CUDA context of a process: the driver's tables, and the stacks of all threads that a large
// device can run at a time. It was observed to take some 500 MiB on an H100 and 430 MiB on an RTX
// 6000 Ada.
constexpr size_t kCudaContextBytes = size_t{512} << 20;
// Returns the memory of a process that has opened a backend with `scratch_bytes` of scratch memory.
inline std::vector<DeviceReserve> backend_reserves(size_t scratch_bytes) {
  return {{"scratch", scratch_bytes}, {"CUDA context", kCudaContextBytes}};
}
// The code of the built-in kernels and those of cuBLASLt and cuDNN, which CUDA loads at the first
// call of a kernel (CUDA_MODULE_LOADING=LAZY, the default since 11.7): tens of kernels of up to
// some MiB each.
constexpr DeviceReserve kKernelCode{"kernels' code", size_t{256} << 20};

// The memory of NCCL per channel and peer: 10 MiB of receive buffers (4 MiB of NCCL_BUFFSIZE, 4.7
// and 0.5 MiB of the protocols LL128 and LL, in pages of 2 MiB) and 2 MiB of send buffers
// (github.com/NVIDIA/nccl/issues/1685; device.h of NCCL 2.28).
constexpr size_t kNcclConnectionBytes = size_t{12} << 20;
// The channels of NCCL's collectives over NVLink: 24 with eight A100s, 16 to 24 with H100s. Each
// channel has two connections: one for the ring, and one for the tree or NVLink SHARP, which
// reductions use.
constexpr size_t kNcclChannels = 24, kNcclConnections = 2;
// The channels of NCCL between two GPUs that send to each other over NVLink.
constexpr size_t kNcclPeerChannels = 32;

// Returns the memory of all NCCL communicators of a rank in the config's mesh; 0 for a single rank.
// Collectives need the connections of their channels. Sends of rows, blocks or activations to
// single peers need as much again for each peer.
size_t nccl_bytes(const TrainConfig& config);

// The device memory per kernel in a CUDA graph: some 10 KB (github.com/NVIDIA/cccl/pull/3768),
// rounded up.
constexpr size_t kGraphKernelBytes = size_t{16} << 10;
// Returns the memory of the CUDA graphs (Transformer::replay) of all layers and the head, for each
// slot of a pipeline; 0 without CUDA graphs. It is computed from an upper bound on the number of
// kernels, which comes from graphs captured on the emulated device; each graph itself counts as one
// more kernel. It was not measured on hardware.
size_t graph_bytes(const TrainConfig& config);

// Returns "beside the plan on the GPU: 1344.0 MiB (scratch 576.0, CUDA context 512.0, kernels' code
// 256.0)".
std::string reserve_line(const std::vector<DeviceReserve>& reserves);

}  // namespace muster::trainer
