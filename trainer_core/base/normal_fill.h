// Normal values of a Philox stream: what initial parameters are made of.
#pragma once

#include <cstdint>
#include <span>

namespace muster::trainer {

// A stream of normal values with mean 0. Value i is `std` times normal_from_bits of the
// stream's word i (common/philox.h, common/normal.h). Each operation is rounded once, so every
// backend computes the same bits.
struct NormalStream {
  uint64_t key = 0;
  uint64_t stream = 0;
  double std = 1;
};

// Writes values first, first + 1, … of the stream. Requires first >= 0. Thread-safe.
void fill_normal(const NormalStream& values, int64_t first, std::span<float> out);

}  // namespace muster::trainer
