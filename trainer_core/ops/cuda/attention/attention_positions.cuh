// The mask and the scores of attention, for the bf16 and the fp32 kernels: the keys to which a
// query attends, and the score of a (query, key) pair.
#pragma once

#include <cstdint>

#include "trainer_core/ops/cuda/attention/attention.h"
#include "trainer_core/ops/cuda/device/device.cuh"

namespace muster::trainer::cuda {

// Represents minus infinity, as on the CPU: the lse of a row that has attended to no key.
constexpr float kMasked = -1e30F;

// The lowest and the highest position of some rows; low > high: no rows.
struct PositionBounds {
  int64_t low, high;
};
// Returns the bounds of the positions of `count` rows from `first` on.
__device__ inline PositionBounds bounds_of(const Runs& runs, int64_t first, int64_t count) {
  const int64_t last = (first + count < runs.count ? first + count : runs.count) - 1;
  if (last < runs.first_count || first >= runs.first_count) return {runs.at(first), runs.at(last)};
  const int64_t end = runs.at(runs.first_count - 1), begin = runs.at(runs.first_count);
  const int64_t low = runs.at(first), high = runs.at(last);
  return {low < begin ? low : begin, high > end ? high : end};
}

// Returns the first position to which the query at `position` attends if its document begins at
// `start`. The overload takes the query's row in its sequence instead.
__device__ inline int64_t oldest_key(const AttentionLayer& layer, int64_t position, int64_t start) {
  const int64_t window = layer.window == 0 ? 0 : position - layer.window + 1;
  const int64_t oldest = window > start ? window : start;
  return oldest > 0 ? oldest : 0;
}
__device__ inline int64_t oldest_key(const AttentionLayer& layer, const int32_t* starts,
                                     int64_t row) {
  return oldest_key(layer, layer.queries.at(row), starts == nullptr ? 0 : starts[row]);
}
__device__ inline const int32_t* starts_of(const AttentionLayer& layer, int64_t sequence) {
  return layer.starts == nullptr ? nullptr : layer.starts + sequence * layer.queries.count;
}

// The keys to which a tile of queries attends. For the queries of each of the two runs, they are
// one range of positions, because neither the window nor the document of a later query begins
// earlier.
struct SeenKeys {
  PositionBounds of_first, of_second;  // empty if low > high

  __device__ bool has(int64_t key) const {
    return (key >= of_first.low && key <= of_first.high) ||
           (key >= of_second.low && key <= of_second.high);
  }
  // Returns true only if the queries attend to all positions within `keys`; may return false even
  // then.
  __device__ bool has_all(const PositionBounds& keys) const {
    return (keys.low >= of_first.low && keys.high <= of_first.high) ||
           (keys.low >= of_second.low && keys.high <= of_second.high);
  }
  __device__ PositionBounds bounds() const {
    return {of_first.low < of_second.low ? of_first.low : of_second.low,
            of_first.high > of_second.high ? of_first.high : of_second.high};
  }
};
// Returns the keys to which the `count` queries from row `first` on attend.
__device__ inline SeenKeys seen_by(const AttentionLayer& layer, const int32_t* starts,
                                   int64_t first, int64_t count) {
  const Runs& queries = layer.queries;
  const int64_t end = first + count < queries.count ? first + count : queries.count;
  const int64_t border = queries.first_count;
  const PositionBounds none = {INT64_MAX, -1};
  SeenKeys seen = {none, none};
  if (first < border)
    seen.of_first = {oldest_key(layer, starts, first),
                     queries.at((end < border ? end : border) - 1)};
  if (end > border) {
    const int64_t begin = first > border ? first : border;
    seen.of_second = {oldest_key(layer, starts, begin), queries.at(end - 1)};
  }
  return seen;
}
// Returns whether each of the `count` queries from row `first` on attends to all keys within
// `keys`.
__device__ inline bool see_all(const AttentionLayer& layer, const int32_t* starts, int64_t first,
                               int64_t count, const PositionBounds& keys) {
  const int64_t end = first + count, border = layer.queries.first_count;
  if (end > layer.queries.count || keys.high > bounds_of(layer.queries, first, count).low)
    return false;
  return keys.low >= oldest_key(layer, starts, end - 1) &&
         (first >= border || end <= border || keys.low >= oldest_key(layer, starts, border - 1));
}
// Returns whether the two ranges overlap.
__device__ inline bool meet(const PositionBounds& a, const PositionBounds& b) {
  return a.low <= b.high && b.low <= a.high;
}

// The score of a (query, key) pair.
struct Score {
  // the query attends to the key
  bool seen;
  float value;
  int32_t bucket;  // bucket of the pair's distance, if there are biases
};
// Returns the score of a pair. `oldest`: result of oldest_key(); `product`: the dot product of
// query and key.
__device__ inline Score score_of(const AttentionLayer& layer, const float* bias, int64_t oldest,
                                 int64_t query, int64_t key, float product) {
  if (key < oldest || key > query) return {false, 0, 0};
  Score score = {true, product * layer.scale, 0};
  if (bias != nullptr) {
    score.bucket = layer.buckets.bucket(query - key);
    score.value += bias[score.bucket];
  }
  if (layer.cap > 0) score.value = layer.cap * tanhf(score.value / layer.cap);
  return score;
}

__device__ inline const float* bias_of(const AttentionLayer& layer, int64_t head) {
  return layer.bias == nullptr ? nullptr : layer.bias + head * layer.buckets.count;
}

}  // namespace muster::trainer::cuda
