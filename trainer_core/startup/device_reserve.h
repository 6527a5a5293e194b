// The GPU memory that a rank takes beside its plan and the backend's scratch, from documented or
// typical figures. The driver and libraries allocate it when they are first used, so a plan that
// leaves no room for it would fail in the first step.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

struct DeviceReserve {
  std::string_view name;
  size_t bytes = 0;
};
// Returns the sum of their bytes.
size_t sum_of(std::span<const DeviceReserve> reserves);

// A process's context before it has allocated anything: the driver's tables, and the stacks of all
// threads that a large device runs at a time. Observed: some 500 MiB on an H100, 430 on an RTX 6000
// Ada.
constexpr size_t kCudaContextBytes = size_t{512} << 20;
// The memory of a process whose backend with `scratch_bytes` of scratch exists.
inline std::vector<DeviceReserve> backend_reserves(size_t scratch_bytes) {
  return {{"scratch", scratch_bytes}, {"CUDA context", kCudaContextBytes}};
}
// Code of the built-in kernels, of cuBLASLt's and cuDNN's, which CUDA loads at their first call
// (CUDA_MODULE_LOADING=LAZY, the default since 11.7): tens of kernels of up to some MiB.
constexpr DeviceReserve kKernelCode{"kernels' code", size_t{256} << 20};

// NCCL's memory per channel and peer: 10 MiB of receive buffers (4 MiB of NCCL_BUFFSIZE, 4.7 and
// 0.5 MiB of the protocols LL128 and LL, in pages of 2 MiB) and 2 MiB to send
// (github.com/NVIDIA/nccl/issues/1685; device.h of 2.28).
constexpr size_t kNcclConnectionBytes = size_t{12} << 20;
// Channels of collectives over NVLink: 24 with eight A100s, 16 to 24 with H100s. Each has two
// connections: the ring's, and that of the tree or NVLink SHARP, which reductions use.
constexpr size_t kNcclChannels = 24, kNcclConnections = 2;
// Channels between two GPUs that send to each other over NVLink.
constexpr size_t kNcclPeerChannels = 32;

// The memory of all NCCL communicators of a rank of the config's mesh; 0 for a single rank.
// Collectives take the connections of their channels. Ranks that send rows, blocks or activations
// to single peers take as much for each peer.
size_t nccl_bytes(const TrainConfig& config);

// The device memory of a kernel in a CUDA graph: some 10 KB (github.com/NVIDIA/cccl/pull/3768),
// rounded up.
constexpr size_t kGraphKernelBytes = size_t{16} << 10;
// The memory of the CUDA graphs (Transformer::replay) of all layers and the head, in each of a
// pipeline's slots; 0 without CUDA graphs. Kernels are counted, with the emulated device's captures
// as the bound; a graph itself counts as one more. Not measured on hardware.
size_t graph_bytes(const TrainConfig& config);

// "beside the plan on the GPU: 1344.0 MiB (scratch 576.0, CUDA context 512.0, kernels' code 256.0)"
std::string reserve_line(const std::vector<DeviceReserve>& reserves);

}  // namespace muster::trainer
