// Tiles of the fp32 attention kernels in shared memory.
//
// A block has kTile x kTile threads, one per pair of a query and a key of two tiles: thread (i, j)
// has row i of the block's own tile and row j of the other. For results of a row and a head's
// columns, the kTile threads of a row take columns j, j + kTile, … Consecutive rows of a tile lie
// kHead + 1 elements apart, so that a warp reads a column of it without bank conflicts.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/attention_positions.cuh"

namespace muster::trainer::cuda {

template <int kTile, int kHead>
struct AttentionTiles {
  static constexpr int kThreads = kTile * kTile;
  static constexpr int kStride = kHead + 1;
  static constexpr int kColumns = kHead / kTile;  // per thread
  static_assert(kTile <= kWarp && kWarp % kTile == 0 && kHead % kTile == 0);

  // Copies rows [first, first + kTile) of `count` rows (…, width), h elements of each, to `to`;
  // fills with zeros beyond the last row and column.
  __device__ static void load(const float* from, int64_t width, int64_t first, int64_t count, int h,
                              float* to) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kHead; i += kThreads) {
      const int row = i / kHead, column = i % kHead;
      const bool here = first + row < count && column < h;
      to[row * kStride + column] = here ? from[(first + row) * width + column] : 0.0F;
    }
  }
  // Dot product of row `row` of tile a and row `other` of tile b.
  __device__ static float dot(const float* a, int row, const float* b, int other, int h) {
    float sum = 0;
    for (int i = 0; i < h; ++i) sum += a[row * kStride + i] * b[other * kStride + i];
    return sum;
  }
};

}  // namespace muster::trainer::cuda
