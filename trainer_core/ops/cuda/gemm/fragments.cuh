// Loads the operands of a warp's GEMMs (tensor_core.cuh) from tiles of bf16 elements in
// shared memory. The rows of a tile lie `stride` elements apart. The stride is an odd multiple of
// 8: a multiple of 8, because each row must begin at a multiple of 16 bytes; an odd multiple, so
// that the eight rows that are read at once lie in different banks.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/device/device.cuh"
#include "trainer_core/ops/cuda/gemm/tensor_core.cuh"

namespace muster::trainer::cuda {

// Sizes of one mma(): d (kMmaRows, kMmaColumns) += a (kMmaRows, kMmaDepth) b (kMmaDepth,
// kMmaColumns).
constexpr int kMmaRows = 16, kMmaColumns = 8, kMmaDepth = 16;
// A multiple of 16 plus this number is an odd multiple of 8, as strides must be.
constexpr int kStridePadding = 8;

__device__ inline int lane_of() { return static_cast<int>(threadIdx.x) % kWarp; }
// fragment_row() returns the row of this lane's d[0] and d[1]; the row of d[2] and d[3] is eight
// further. fragment_column() returns the column of d[0] and d[2]; the column of d[1] and d[3] is
// the next one.
__device__ inline int fragment_row() { return lane_of() / 4; }
__device__ inline int fragment_column() { return 2 * (lane_of() % 4); }

// Loads the left operand a (16, 16). The rows of `tile` are the rows of a, or with kTransposed the
// columns of a.
template <bool kTransposed>
__device__ inline void load_left(const Bf16* tile, int stride, uint32_t (&a)[4]) {
  const int lane = lane_of(), r = lane % 8, eight = lane / 8 % 2 * 8, sixteen = lane / 16 * 8;
  if constexpr (kTransposed) {
    load_transposed_matrices(tile + (r + sixteen) * stride + eight, a);
  } else {
    load_matrices(tile + (r + eight) * stride + sixteen, a);
  }
}

// Loads two right operands b (16, 8) that lie side by side. The rows of `tile` are the columns of
// the operands; with kByDepth the rows of `tile` are the rows of the operands.
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

// Rounds two results d that lie side by side to bf16, as the left operand of another product. The
// columns of the results become its depth.
__device__ inline void left_of(const float (&d)[4], const float (&beside)[4], uint32_t (&a)[4]) {
  a[0] = pack_bf16(d[0], d[1]);
  a[1] = pack_bf16(d[2], d[3]);
  a[2] = pack_bf16(beside[0], beside[1]);
  a[3] = pack_bf16(beside[2], beside[3]);
}

}  // namespace muster::trainer::cuda
