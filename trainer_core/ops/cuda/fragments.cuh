// Operands of a warp's products (tensor_core.cuh) out of tiles of bf16 numbers in shared memory. A tile's rows lie `stride` numbers apart: a
// multiple of 8, since each begins on 16 bytes, and an odd one of them, so that the eight rows that are read at once lie in different banks.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/device.cuh"
#include "trainer_core/ops/cuda/tensor_core.cuh"

namespace muster::trainer::cuda {

// Of one mma(): d (kMmaRows, kMmaColumns) += a (kMmaRows, kMmaDepth) b (kMmaDepth, kMmaColumns).
constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaDepth = 16;
// What makes a stride of a multiple of 16 an odd multiple of 8.
constexpr int kStridePadding = 8;

__device__ inline int lane_of() { return static_cast<int>(threadIdx.x) % kWarp; }
// The row of d[0] and d[1], eight before that of d[2] and d[3]; and the column of d[0] and d[2], before that of the others.
__device__ inline int fragment_row() { return lane_of() / 4; }
__device__ inline int fragment_column() { return 2 * (lane_of() % 4); }

// a (16, 16) from `tile`, which has a row of it in each row, or is its transpose.
template <bool kTransposed>
__device__ inline void load_left(const Bf16* tile, int stride, uint32_t (&a)[4]) {
  const int lane = lane_of(), r = lane % 8, eight = lane / 8 % 2 * 8, sixteen = lane / 16 * 8;
  if constexpr (kTransposed) {
    load_transposed_matrices(tile + (r + sixteen) * stride + eight, a);
  } else {
    load_matrices(tile + (r + eight) * stride + sixteen, a);
  }
}

// Two b (16, 8) side by side from `tile`, which has a column of them in each row, or with kByDepth is (16, 16) as they are.
template <bool kByDepth>
__device__ inline void load_right(const Bf16* tile, int stride, uint32_t (&b)[2][2]) {
  const int lane = lane_of(), r = lane % 8, eight = lane / 8 % 2 * 8, sixteen = lane / 16 * 8;
  uint32_t words[4];
  if constexpr (kByDepth) {
    load_transposed_matrices(tile + (r + eight) * stride + sixteen, words);
  } else {
    load_matrices(tile + (r + sixteen) * stride + eight, words);
  }
  b[0][0] = words[0], b[0][1] = words[1], b[1][0] = words[2], b[1][1] = words[3];
}

// Of two products side by side, rounded: their columns are the depth of the product that comes next.
__device__ inline void left_of(const float (&d)[4], const float (&beside)[4], uint32_t (&a)[4]) {
  a[0] = pack_bf16(d[0], d[1]);
  a[1] = pack_bf16(d[2], d[3]);
  a[2] = pack_bf16(beside[0], beside[1]);
  a[3] = pack_bf16(beside[2], beside[3]);
}

}  // namespace muster::trainer::cuda
