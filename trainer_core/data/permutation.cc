#include "trainer_core/data/permutation.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/random/philox.h"

namespace muster::trainer {
namespace {

constexpr uint64_t kFeistelRounds = 6;
// A Feistel network over a small domain cannot produce all orders, and not with equal frequency. So
// small domains use a larger network.
constexpr uint32_t kHalfBitsMin = 4;
// The permutation of epoch e uses the Philox stream kShuffleStream + e.
constexpr uint64_t kShuffleStream = uint64_t{1} << 48;

}  // namespace

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
    : n_(n), seed_(seed), epoch_(epoch) {
  const auto bits = static_cast<uint32_t>(std::bit_width(n > 1 ? n - 1 : 1));
  half_bits_ = std::max((bits + 1) / 2, kHalfBitsMin);
}

uint64_t Permutation::operator()(uint64_t i) const {
  const Philox philox{.key = seed_, .stream = kShuffleStream + epoch_};
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // Unless n is small, the network's domain is smaller than 4 n, so the average is below four
  // iterations.
  do {
    uint64_t left = i >> half_bits_;
    uint64_t right = i & mask;
    for (uint64_t round = 0; round < kFeistelRounds; ++round) {
      const uint64_t mixed = philox((round << 56) | right)[0];
      left = std::exchange(right, (left ^ mixed) & mask);
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);
  return i;
}

}  // namespace muster::trainer
