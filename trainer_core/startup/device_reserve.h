// What a rank takes of a GPU's memory beside its plan and the backend's scratch, by figures that are documented or typical: driver and
// libraries allocate it when they are first called, so a plan that leaves no room for it dies in the first step.
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
// Bytes of all of them.
size_t sum_of(std::span<const DeviceReserve> reserves);

// A process's context before it has allocated anything: the driver's tables, and the stacks of all threads that a large device runs at a
// time. Some 500 MiB are seen of an H100, 430 of an RTX 6000 Ada.
constexpr size_t kCudaContextBytes = size_t{512} << 20;
// What a process has taken once its backend is there, which has so much scratch.
inline std::vector<DeviceReserve> backend_reserves(size_t scratch_bytes) {
  return {{"scratch", scratch_bytes}, {"CUDA context", kCudaContextBytes}};
}
// Code of our own kernels, cuBLASLt's and cuDNN's, which CUDA loads when it is first called (CUDA_MODULE_LOADING=LAZY, the default since
// 11.7): tens of kernels of up to some MiB.
constexpr DeviceReserve kKernelCode{"kernels' code", size_t{256} << 20};

// What a channel of NCCL's takes for a peer: 10 MiB to receive into (NCCL_BUFFSIZE's 4 MiB, and 4.7 and 0.5 MiB of the protocols LL128 and LL,
// in pages of 2 MiB) and 2 MiB to send (github.com/NVIDIA/nccl/issues/1685, as 2.28's device.h has it).
constexpr size_t kNcclConnectionBytes = size_t{12} << 20;
// Channels of collectives over NVLink: 24 of eight A100s, 16 to 24 of H100s. Each has two connections: the ring's, and the tree's or NVLink
// SHARP's, by which reductions go.
constexpr size_t kNcclChannels = 24, kNcclConnections = 2;
// Channels between two GPUs that send to each other over NVLink.
constexpr size_t kNcclPeerChannels = 32;

// Of all communicators of a rank of the config's mesh, where ranks bring their numbers together by NCCL; 0 for a rank alone. Collectives take
// what the channels' connections need, and whoever sends rows, blocks or streams to single ranks takes as much for each of them.
size_t nccl_bytes(const TrainConfig& config);

// What a kernel takes in a CUDA graph, of the device's memory: some 10 KB (github.com/NVIDIA/cccl/pull/3768), rounded up.
constexpr size_t kGraphKernelBytes = size_t{16} << 10;
// Of all layers and the head as if each were graphs (Transformer::replay), in each of a pipeline's slots; 0 where none is to be. Kernels are
// counted, and bounded by what the emulated device captures; a graph itself counts as one more. Never measured.
size_t graph_bytes(const TrainConfig& config);

// "beside the plan on the GPU: 1344.0 MiB (scratch 576.0, CUDA context 512.0, kernels' code 256.0)"
std::string reserve_line(const std::vector<DeviceReserve>& reserves);

}  // namespace muster::trainer
