// Random words of elements of samples: what ops/cpu/philox.inc makes, one at a time.
#pragma once

#include <cstdint>

#include "common/philox.h"
#include "trainer_core/ops/cuda/device.cuh"

namespace muster::trainer::cuda {

// Positions of one place in the model: as ops/cpu/philox.inc has it.
constexpr int kPlaceShift = 46;

// The word of element `element` of a sample: four neighbours share a position of the stream.
__device__ inline uint32_t random_word(uint64_t key, uint64_t place, uint64_t sample,
                                       int64_t element) {
  const uint64_t index = (place << kPlaceShift) + static_cast<uint64_t>(element / 4);
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(sample), c3 = static_cast<uint32_t>(sample >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < Philox::kRounds; ++round) {
    const uint64_t p0 = uint64_t{Philox::kM0} * c0, p1 = uint64_t{Philox::kM1} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += Philox::kW0;
    k1 += Philox::kW1;
  }
  switch (element % 4) {
    case 0:
      return c0;
    case 1:
      return c1;
    case 2:
      return c2;
    default:
      return c3;
  }
}

}  // namespace muster::trainer::cuda
