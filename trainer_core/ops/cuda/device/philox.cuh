// Random words for the elements of samples, equal to those of ops/cpu/philox.inc.
#pragma once

#include <cstdint>

#include "common/random/philox.h"
#include "trainer_core/ops/cuda/device/device.cuh"

namespace muster::trainer::cuda {

// log2 of the counter positions per location in the model, as in ops/cpu/philox.inc.
constexpr int kLocationShift = 46;

// Computes the four words at position `index` of a stream, as Philox::operator() does.
__device__ inline void random_words(uint64_t key, uint64_t index, uint64_t stream,
                                    uint32_t (&words)[4]) {
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream), c3 = static_cast<uint32_t>(stream >> 32);
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
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// Returns the word of element `element` of a sample. Four neighbouring elements use the four words
// of one position.
__device__ inline uint32_t element_word(uint64_t key, uint64_t location, uint64_t sample,
                                        int64_t element) {
  uint32_t words[4];
  random_words(key, (location << kLocationShift) + static_cast<uint64_t>(element / 4), sample,
               words);
  const auto word = element % 4;
  return word == 0 ? words[0] : word == 1 ? words[1] : word == 2 ? words[2] : words[3];
}

}  // namespace muster::trainer::cuda
