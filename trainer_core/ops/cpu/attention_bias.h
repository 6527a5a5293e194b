// Converts between a layer's table of relative biases (H, buckets) and the rows of biases that the
// CPU's attention kernels add to scores. A row holds one head's biases by distance, in the order of
// ascending keys, so that it aligns with a row of scores. Element k of a row for `positions`
// positions is the bias of distance positions - 1 - k.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trainer_core/base/relative_buckets.h"
#include "trainer_core/ops/cpu/attention_layout.h"

namespace muster::trainer::cpu {

// Returns the index, in a row of biases, of the bias for `query` and `key`; the biases for the next
// keys follow.
constexpr int64_t bias_offset(int64_t positions, int64_t query, int64_t key) {
  return positions - 1 - query + key;
}

// Fills `row` (bias_row_elements(positions) elements) from one head's table of buckets.
inline void spread_bias(const RelativeBuckets& buckets, const float* table, int64_t positions,
                        float* row) {
  for (int64_t distance = 0; distance < positions; ++distance)
    row[positions - 1 - distance] = table[buckets.of(distance)];
  std::fill_n(row + positions, bias_row_elements(positions) - positions, 0.0F);
}

// Computes the gradient of spread_bias(): each bucket of d_table is the sum of d_row over the
// bucket's distances.
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
