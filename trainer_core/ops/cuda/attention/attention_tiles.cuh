// Tiles of the fp32 attention kernels in shared memory.
//
// A block has kTile x kTile threads, one per (query, key) pair of two tiles: thread (i, j) computes
// row i of the block's own tile with row j of the other tile. For results with a head's columns,
// the kTile threads of row i compute columns j, j + kTile, … Consecutive rows of a tile lie kHead +
// 1 elements apart, so that a warp reads a column without bank conflicts.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/attention/attention_positions.cuh"

namespace muster::trainer::cuda {

template <int kTile, int kHead>
struct AttentionTiles {
  static constexpr int kThreads = kTile * kTile;
  static constexpr int kStride = kHead + 1;
  static constexpr int kColumns = kHead / kTile;  // columns per thread
  static_assert(kTile <= kWarp && kWarp % kTile == 0 && kHead % kTile == 0);

  // Copies rows [first, first + kTile) of a matrix (count, width), the first h elements of each, to
  // `to`. Elements beyond the last row and column become zeros.
  __device__ static void load(const float* from, int64_t width, int64_t first, int64_t count, int h,
                              float* to) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kHead; i += kThreads) {
      const int row = i / kHead, column = i % kHead;
      const bool here = first + row < count && column < h;
      to[row * kStride + column] = here ? from[(first + row) * width + column] : 0.0F;
    }
  }
  // Returns the dot product of row `row` of tile a and row `other` of tile b.
  __device__ static float dot(const float* a, int row, const float* b, int other, int h) {
    float sum = 0;
    for (int i = 0; i < h; ++i) sum += a[row * kStride + i] * b[other * kStride + i];
    return sum;
  }
};

}  // namespace muster::trainer::cuda
