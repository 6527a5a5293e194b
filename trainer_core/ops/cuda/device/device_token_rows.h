// Positions, token rows and buckets as structs that kernels receive by value.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "trainer_core/base/check.h"
#include "trainer_core/base/relative_buckets.h"
#include "trainer_core/ops/token_rows.h"

namespace muster::trainer::cuda {

// The Positions of ops/token_rows.h, in at most two runs. Row i of a sequence has position first +
// i in the first run, and second + (i - first_count) after it.
struct Runs {
  int64_t count = 0;
  int64_t first_count = 0;
  int64_t first = 0;
  int64_t second = 0;

  static Runs of(const Positions& positions) {
    static_assert(Positions::kRunsMax == 2);
    Runs runs;
    runs.count = positions.count();
    if (positions.runs() > 0) {
      runs.first_count = positions.run(0).count;
      runs.first = positions.run(0).position;
    }
    if (positions.runs() > 1) runs.second = positions.run(1).position;
    return runs;
  }
  // Returns the position of a row of the sequence.
  __host__ __device__ int64_t at(int64_t row) const {
    return row < first_count ? first + row : second + (row - first_count);
  }
};

// The TokenRows of ops/token_rows.h.
struct DeviceTokenRows {
  Runs runs;
  int64_t skipped = 0;  // number of rows before the tensor's first row

  static DeviceTokenRows of(const TokenRows& rows) {
    return {Runs::of(rows.positions), rows.first};
  }
  __host__ __device__ int64_t sequence(int64_t row) const { return (skipped + row) / runs.count; }
  __host__ __device__ int64_t position(int64_t row) const {
    return runs.at((skipped + row) % runs.count);
  }
};

// The SampleElements of ops/token_rows.h: maps an element (row, column) of a tensor to its sample
// and its index in the sample.
struct Elements {
  uint64_t first_sample = 0;
  DeviceTokenRows token_rows;
  int64_t first_column = 0;
  int64_t columns = 0;  // number of elements per position in the sample

  static Elements of(const SampleElements& elements, int64_t width) {
    const bool whole = elements.columns == 0 || elements.columns == width;
    return {elements.first_sample, DeviceTokenRows::of(elements.rows),
            whole ? 0 : elements.first_column, whole ? width : elements.columns};
  }
  __host__ __device__ uint64_t sample(int64_t row) const {
    return first_sample + static_cast<uint64_t>(token_rows.sequence(row));
  }
  __host__ __device__ int64_t element(int64_t row, int64_t column) const {
    return token_rows.position(row) * columns + first_column + column;
  }
};

// RelativeBuckets as the first distance of each bucket. The host computes these distances, because
// the logarithm in their formula may be rounded differently on the device.
struct Buckets {
  // Maximum number of buckets, which bounds the size of kernel arguments; T5 has 32 buckets.
  static constexpr int kMax = 256;

  int32_t count = 0;
  int64_t first[kMax] = {};

  static Buckets of(const RelativeBuckets& buckets) {
    MUSTER_CHECK(buckets.count <= kMax) << "relative_position_buckets is " << buckets.count
                                        << "; with hardware=gpu at most " << kMax;
    Buckets result;
    result.count = buckets.count;
    for (int32_t bucket = 1; bucket < buckets.count; ++bucket) {
      int64_t low = result.first[bucket - 1], high = buckets.max_distance;
      while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (buckets.of(middle) >= bucket) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      result.first[bucket] = low;
    }
    return result;
  }
  // Returns the bucket of a distance. If several buckets begin at the same distance, returns the
  // last one; the others are empty.
  __host__ __device__ int32_t bucket(int64_t distance) const {
    int32_t low = 0, high = count - 1;
    while (low < high) {
      const int32_t middle = (low + high + 1) / 2;
      if (first[middle] <= distance) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }
};

}  // namespace muster::trainer::cuda
