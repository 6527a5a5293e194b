// What attention's passes share: which keys a query sees, tiles of rows in shared memory, and scores.
//
// A block has kTile x kTile threads, one for each pair of a tile of queries and one of keys: thread (i, j) of its rows. For what has a row
// and a head's columns, the kTile threads of a row take columns j, j + kTile, … Neighbouring rows of a tile lie kHead + 1 numbers apart, so
// that a warp reads a column of it without conflicts.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/attention.h"
#include "trainer_core/ops/cuda/device.cuh"

namespace muster::trainer::cuda {

// Stands for minus infinity, as on the processor: the lse of a row that has seen no key.
constexpr float kMasked = -1e30F;

template <int kTile, int kHead>
struct AttentionTiles {
  static constexpr int kThreads = kTile * kTile;
  static constexpr int kStride = kHead + 1;
  static constexpr int kColumns = kHead / kTile;  // of a thread
  static_assert(kTile <= kWarp && kWarp % kTile == 0 && kHead % kTile == 0);

  // to = rows [first, first + kTile) of `count` rows (…, width) of which each has h numbers here; zeros behind the last row and column.
  template <class T>
  __device__ static void load(const T* from, int64_t width, int64_t first, int64_t count, int h,
                              float* to) {
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kHead; i += kThreads) {
      const int row = i / kHead, column = i % kHead;
      const bool here = first + row < count && column < h;
      to[row * kStride + column] = here ? to_float(from[(first + row) * width + column]) : 0.0F;
    }
  }
  // Of row `row` of one tile and row `other` of another.
  __device__ static float dot(const float* a, int row, const float* b, int other, int h) {
    float sum = 0;
    for (int i = 0; i < h; ++i) sum += a[row * kStride + i] * b[other * kStride + i];
    return sum;
  }
};

// The positions that `count` rows from `first` on have, bounded from both sides.
struct PositionBounds {
  int64_t low, high;
};
__device__ inline PositionBounds bounds_of(const Runs& runs, int64_t first, int64_t count) {
  const int64_t last = (first + count < runs.count ? first + count : runs.count) - 1;
  if (last < runs.first_count || first >= runs.first_count) return {runs.at(first), runs.at(last)};
  const int64_t end = runs.at(runs.first_count - 1), begin = runs.at(runs.first_count);
  const int64_t low = runs.at(first), high = runs.at(last);
  return {low < begin ? low : begin, high > end ? high : end};
}

// The first position that the query in row `row` of a sequence sees.
__device__ inline int64_t oldest_key(const AttentionLayer& layer, const int32_t* starts,
                                     int64_t row) {
  const int64_t position = layer.queries.at(row);
  const int64_t window = layer.window == 0 ? 0 : position - layer.window + 1;
  const int64_t start = starts == nullptr ? 0 : starts[row];
  const int64_t oldest = window > start ? window : start;
  return oldest > 0 ? oldest : 0;
}
__device__ inline const int32_t* starts_of(const AttentionLayer& layer, int64_t sequence) {
  return layer.starts == nullptr ? nullptr : layer.starts + sequence * layer.queries.count;
}

// Which keys a tile of queries sees at all: positions [oldest, newest].
__device__ inline PositionBounds seen_by(const AttentionLayer& layer, const int32_t* starts,
                                         int64_t first, int64_t count) {
  // Neither windows nor documents begin earlier for a later position: the oldest key is that of a run's first query.
  int64_t oldest = oldest_key(layer, starts, first);
  const int64_t second = layer.queries.first_count;
  if (first < second && second < first + count && second < layer.queries.count) {
    const int64_t other = oldest_key(layer, starts, second);
    oldest = other < oldest ? other : oldest;
  }
  return {oldest, bounds_of(layer.queries, first, count).high};
}
__device__ inline bool meet(const PositionBounds& a, const PositionBounds& b) {
  return a.low <= b.high && b.low <= a.high;
}

// A query's score of a key from the product of the two, and whether it sees the key.
struct Score {
  bool seen;
  float value;
};
__device__ inline Score score_of(const AttentionLayer& layer, const float* bias, int64_t oldest,
                                 int64_t query, int64_t key, float product) {
  if (key < oldest || key > query) return {false, 0};
  float score = product * layer.scale;
  if (bias != nullptr) score += bias[layer.buckets.bucket(query - key)];
  if (layer.cap > 0) score = layer.cap * tanhf(score / layer.cap);
  return {true, score};
}

__device__ inline const float* bias_of(const AttentionLayer& layer, int64_t head) {
  return layer.bias == nullptr ? nullptr : layer.bias + head * layer.buckets.count;
}

}  // namespace muster::trainer::cuda
