// Common parts of the kernels: indices, reductions within a warp or a block, and launches. Included
// by .cu files only.
//
// Large kernel arguments are declared __grid_constant__, so that kernels read them in place instead
// of copying them to each thread's local memory.
//
// Kernels declare shared memory with a fixed size or use dynamic_shared() (tensor_core.cuh), and
// are launched by launch(). Thus the same sources also compile for CPUs, where tests/gpu/emulated
// runs a block's threads as fibers.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/dtype.h"
#include "trainer_core/ops/cuda/device/cuda_check.h"

namespace muster::trainer::cuda {

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;
// Number of threads per block, unless a kernel has another number.
constexpr int kThreads = 256;
// Maximum number of blocks of grid-stride kernels (kernels whose threads iterate over the elements
// with the step global_count()): several blocks per multiprocessor on the largest device.
constexpr int64_t kBlocksMax = 8192;
// Lower than any score or logit.
constexpr float kLowest = -3.402823466e38F;

// Returns the number of this thread in the grid.
__device__ inline int64_t global_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
// Returns the number of threads in the grid.
__device__ inline int64_t global_count() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

// Combines the values of `lanes` neighbouring lanes (a power of two) by a butterfly exchange, and
// returns the result on each of these lanes. Requires that every lane of the warp calls it.
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

// Combines the values of all threads of a block, and returns the result on each thread. Requires
// that the block consists of whole warps and that every thread calls it.
template <class T, class Combine>
__device__ inline T block_reduce(T value, T neutral, const Combine& combine) {
  __shared__ T parts[kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  value = warp_reduce(value, combine);
  __syncthreads();  // other threads may still read the parts of an earlier call
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

// Returns a grid with one block per item. Ends the process if `items` exceeds a grid's limit, which
// no practical shape does.
inline dim3 one_block_each(int64_t items) {
  MUSTER_CHECK(items <= std::numeric_limits<int32_t>::max()) << items << " blocks in a grid";
  return dim3(static_cast<unsigned>(items));
}
// Returns the grid of a grid-stride kernel for this number of items.
inline dim3 blocks_for(int64_t items, int threads = kThreads) {
  return dim3(static_cast<unsigned>(std::min(ceil_div(items, threads), kBlocksMax)));
}

// Bytes of shared memory that a block may request on every device of compute capability 8.0 and
// newer: sm_86 and sm_89 have 99 KiB, sm_80 163 KiB, sm_90 227 KiB.
constexpr size_t kSharedBytesAnywhere = 99 << 10;
// Returns the bytes of shared memory that a block may request on the calling thread's device.
inline size_t shared_bytes_max() {
  int device = 0, bytes = 0;
  MUSTER_CUDA_CHECK(cudaGetDevice(&device));
  MUSTER_CUDA_CHECK(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return static_cast<size_t>(bytes);
}

// Launches a kernel; does nothing if a dimension of the grid is 0. `shared_bytes`: size of
// dynamic_shared(), at most shared_bytes_max(). CUDA requires a request for more than 48 KiB, which
// this function makes.
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

// Calls body with a value of the C++ type of `dtype`.
template <class Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::kBf16) {
    body(Bf16());
  } else {
    body(float());
  }
}

}  // namespace muster::trainer::cuda
