// The values of frozen weights that are stored in blocks (base/weight_blocks.h): the operations of
// ops/cpu/decode_weights.cc in the same order, so that both backends have the same bits. Bound by
// memory: a thread writes 8 elements, which lie in one block, with 16-byte accesses.
#include <algorithm>

#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/device/kernels.h"
#include "trainer_core/ops/cuda/device/vectors.cuh"

namespace muster::trainer::cuda {
namespace {

constexpr int kRun = 8;  // elements of a thread; divides a block

// NF4's table as an argument of a kernel, so that it is in constant memory.
struct Nf4Table {
  float of[kNf4Values.size()];
};

template <class T>
__global__ void decode_nf4_kernel(int64_t n, const __grid_constant__ Nf4Table table,
                                  const uint32_t* codes, const float* scales, T* out) {
  for (int64_t run = global_index(); run < n / kRun; run += global_count()) {
    const int64_t first = run * kRun;
    const float scale = scales[first / kWeightBlock];
    const uint32_t word = codes[run];  // 4 bytes, the first one in the lowest bits
    Pack<kRun> values;
#pragma unroll
    for (int i = 0; i < kRun / 2; ++i) {
      const uint32_t pair = word >> (8 * i);
      values.of[2 * i] = __fmul_rn(table.of[(pair >> 4) & 15U], scale);
      values.of[2 * i + 1] = __fmul_rn(table.of[pair & 15U], scale);
    }
    store(values, out + first);
  }
}

template <class T>
__global__ void decode_int8_kernel(int64_t n, const uint2* codes, const float* scales, T* out) {
  for (int64_t run = global_index(); run < n / kRun; run += global_count()) {
    const int64_t first = run * kRun;
    const float scale = scales[first / kWeightBlock];
    const uint2 words = codes[run];
    Pack<kRun> values;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const uint32_t word = i < kRun / 2 ? words.x : words.y;
      const auto code = static_cast<int8_t>(static_cast<uint8_t>(word >> (8 * (i % 4))));
      values.of[i] = __fmul_rn(__fmul_rn(static_cast<float>(code), scale), kInt8Step);
    }
    store(values, out + first);
  }
}

}  // namespace

void decode_weights(cudaStream_t stream, const WeightBlocks& blocks, const Tensor& out) {
  const int64_t n = out.elements();
  const float* const scales = blocks.scales.f32();
  Nf4Table table{};
  std::copy(kNf4Values.begin(), kNf4Values.end(), table.of);
  with_type(out.dtype, [&](auto number) {
    using T = decltype(number);
    T* const to = static_cast<T*>(out.data);
    if (blocks.type == WeightType::kNf4) {
      launch(stream, blocks_for(n / kRun), kThreads, decode_nf4_kernel<T>, n, table,
             static_cast<const uint32_t*>(blocks.codes.data), scales, to);
    } else {
      launch(stream, blocks_for(n / kRun), kThreads, decode_int8_kernel<T>, n,
             static_cast<const uint2*>(blocks.codes.data), scales, to);
    }
  });
}

}  // namespace muster::trainer::cuda
