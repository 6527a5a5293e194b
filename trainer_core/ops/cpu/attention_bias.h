// Converts between a layer's table of relative biases (H, buckets) and the rows that attention's
// kernels add to scores. A row has a head's biases by distance in key order, so that scores and
// biases align. Element k of a row of `positions` is the bias of distance positions - 1 - k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer_core/base/relative_buckets.h"
#include "trainer_core/ops/cpu/attention_layout.h"

namespace muster::trainer::cpu {

// Returns the offset in a row of the biases of a query that sees keys from `key` on.
constexpr int64_t bias_offset(int64_t positions, int64_t query, int64_t key) {
  return positions - 1 - query + key;
}

// `row` has bias_row_elements(positions).
inline void spread_bias(const RelativeBuckets& buckets, const float* table, int64_t positions,
                        float* row) {
  for (int64_t distance = 0; distance < positions; ++distance)
    row[positions - 1 - distance] = table[buckets.of(distance)];
  std::fill_n(row + positions, bias_row_elements(positions) - positions, 0.0F);
}

// The transpose of spread_bias: d_table = the sums over a row's distances of each bucket.
inline void gather_bias(const RelativeBuckets& buckets, const float* d_row, int64_t positions,
                        float* d_table) {
  std::fill_n(d_table, buckets.count, 0.0F);
  double sum = 0;
  for (int64_t distance = 0; distance < positions; ++distance) {
    sum += d_row[positions - 1 - distance];
    const int32_t bucket = buckets.of(distance);
    if (distance + 1 < positions && buckets.of(distance + 1) == bucket) continue;
    d_table[bucket] = static_cast<float>(sum);
    sum = 0;
  }
}

}  // namespace muster::trainer::cpu
