// What kernels share: indices, reductions within a warp and a block, and launching. Included by .cu files alone.
//
// A kernel's large arguments are __grid_constant__: read where they lie, never copied to a thread's own memory.
//
// Shared memory is declared with its size or is dynamic_shared() (tensor_core.cuh), and launches go through launch(): so the same sources
// compile for processors, where tests/gpu/emulated runs a block's threads as fibers.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/dtype.h"
#include "trainer_core/ops/cuda/cuda_check.h"

namespace muster::trainer::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;
// Of kernels that say nothing else.
constexpr int kThreads = 256;
// Blocks of a kernel whose threads go round until all is done: several waves on the largest device.
constexpr int64_t kBlocksMax = 8192;
// What is below each score and logit.
constexpr float kLowest = -3.402823466e38F;

__device__ inline int64_t global_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t global_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// The value over `lanes` neighbouring lanes (a power of two), which all get it: the order of additions is that of a butterfly. Every lane of
// the warp must come here.
template <class T, class Combine>
__device__ inline T warp_reduce(T value, const Combine& combine, int lanes = kWarp) {
  for (int step = lanes / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}
template <class T>
__device__ inline T warp_sum(T value, int lanes = kWarp) {
  return warp_reduce(
      value, [](T a, T b) { return a + b; }, lanes);
}
__device__ inline float warp_max(float value, int lanes = kWarp) {
  return warp_reduce(
      value, [](float a, float b) { return fmaxf(a, b); }, lanes);
}

// The same over a block of whole warps; all threads get it, and all must come here.
template <class T, class Combine>
__device__ inline T block_reduce(T value, T neutral, const Combine& combine) {
  __shared__ T parts[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  value = warp_reduce(value, combine);
  __syncthreads();  // whoever still reads an earlier call's parts
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / kWarp ? parts[lane] : neutral;
  return warp_reduce(value, combine);
}
template <class T>
__device__ inline T block_sum(T value) {
  return block_reduce(value, T(0), [](T a, T b) { return a + b; });
}
__device__ inline float block_max(float value) {
  return block_reduce(value, kLowest, [](float a, float b) { return fmaxf(a, b); });
}

// Host code

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A block for each of `items`; more than a grid has are no shape that anybody trains with.
inline dim3 one_block_each(int64_t items) {
  MUSTER_CHECK(items <= std::numeric_limits<int32_t>::max()) << items << " blocks in a grid";
  return dim3(static_cast<unsigned>(items));
}
// For threads that go round.
inline dim3 blocks_for(int64_t items, int threads = kThreads) {
  return dim3(static_cast<unsigned>(std::min(ceil_div(items, threads), kBlocksMax)));
}

// The least that a block may ask for on any device of 8.0 and newer: sm_86 and sm_89 have 99 KiB, sm_80 163, sm_90 227.
constexpr size_t kSharedBytesAnywhere = 99 << 10;
// What it may ask for on the calling thread's.
inline size_t shared_bytes_max() {
  int device = 0, bytes = 0;
  MUSTER_CUDA_CHECK(cudaGetDevice(&device));
  MUSTER_CUDA_CHECK(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<size_t>(bytes);
}

// Nothing is started where a dimension of the grid is 0. A kernel that takes dynamic_shared() memory gets so many bytes of it; beyond 48 KiB
// it has to ask, and more than shared_bytes_max() is an error.
template <class... Parameters, class... Arguments>
void launch_with_shared(cudaStream_t stream, dim3 blocks, dim3 threads, size_t shared_bytes,
                        void (*kernel)(Parameters...), Arguments... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  constexpr size_t kUnasked = 48 << 10;
  if (shared_bytes > kUnasked)
    MUSTER_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared_bytes)));
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  MUSTER_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...));
}
template <class... Parameters, class... Arguments>
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
            Arguments... arguments) {
  launch_with_shared(stream, blocks, threads, 0, kernel, arguments...);
}

// Calls body with a number of the type.
template <class Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::kBf16) {
    body(Bf16());
  } else {
    body(float());
  }
}

}  // namespace muster::trainer::cuda
