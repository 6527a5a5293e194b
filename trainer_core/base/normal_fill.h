// Normally distributed values of a Philox stream, from which parameters are initialised.
#pragma once

#include <cstdint>
#include <span>

namespace muster::trainer {

// A stream of normally distributed values with mean 0. Value i is `std` * normal_from_bits(word i
// of the Philox stream); see common/random/philox.h and common/random/normal.h. Each operation is
// rounded separately, so every backend computes the same bits.
struct NormalStream {
  uint64_t key = 0;
  uint64_t stream = 0;
  double std = 1;  // standard deviation
};

// Writes values first, first + 1, … of the stream. Requires first >= 0. Thread-safe.
void fill_normal(const NormalStream& values, int64_t first, std::span<float> out);

}  // namespace muster::trainer
