// Tiles of fp32 attention's kernels in shared memory.
//
// A block has kTile x kTile threads, one for each pair of a tile of queries and one of keys: thread (i, j) of its rows. For what has a row
// and a head's columns, the kTile threads of a row take columns j, j + kTile, … Neighbouring rows of a tile lie kHead + 1 numbers apart, so
// that a warp reads a column of it without conflicts.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/attention_positions.cuh"

namespace muster::trainer::cuda {

template <int kTile, int kHead>
struct AttentionTiles {
  static constexpr int kThreads = kTile * kTile;
  static constexpr int kStride = kHead + 1;
  static constexpr int kColumns = kHead / kTile;  // of a thread
  static_assert(kTile <= kWarp && kWarp % kTile == 0 && kHead % kTile == 0);

  // to = rows [first, first + kTile) of `count` rows (…, width) of which each has h numbers here; zeros behind the last row and column.
  __device__ static void load(const float* from, int64_t width, int64_t first, int64_t count, int h,
                              float* to) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kHead; i += kThreads) {
      const int row = i / kHead, column = i % kHead;
      const bool here = first + row < count && column < h;
      to[row * kStride + column] = here ? from[(first + row) * width + column] : 0.0F;
    }
  }
  // Of row `row` of one tile and row `other` of another.
  __device__ static float dot(const float* a, int row, const float* b, int other, int h) {
    float sum = 0;
    for (int i = 0; i < h; ++i) sum += a[row * kStride + i] * b[other * kStride + i];
    return sum;
  }
};

}  // namespace muster::trainer::cuda
