// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
// as easy as 1, 2, 3" (SC11). A value depends on (key, counter) alone, so initial weights, dropout and
// the order of data are the same on any mesh, on any backend and after any restart.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace muster {

struct Philox {
  using Block = std::array<uint32_t, 4>;

  uint64_t key = 0;     // the seed
  uint64_t stream = 0;  // what the numbers are for: a tensor, a layer's dropout, an epoch's shuffle

  // Four independent uniform 32-bit words for position `index` of the stream.
  constexpr Block operator()(uint64_t index) const {
    Block c{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
            static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
      const uint64_t p0 = uint64_t{kM0} * c[0];
      const uint64_t p1 = uint64_t{kM1} * c[2];
      c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
           static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
      k0 += kW0;
      k1 += kW1;
    }
    return c;
  }

 private:
  static constexpr int kRounds = 10;
  static constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  static constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
};

// Uniform in (0, 1): 23 bits and a half, so neither bound is reached and a logarithm of it is finite.
constexpr float uniform_from_bits(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5F) * 0x1p-23F;
}

// Two independent standard normal values (Box and Muller, 1958) from two words.
inline std::array<float, 2> normal_from_bits(uint32_t a, uint32_t b) {
  constexpr double kTwoPi = 6.283185307179586;
  const double radius = std::sqrt(-2.0 * std::log(static_cast<double>(uniform_from_bits(a))));
  const double angle = kTwoPi * static_cast<double>(uniform_from_bits(b));
  return {static_cast<float>(radius * std::cos(angle)),
          static_cast<float>(radius * std::sin(angle))};
}

}  // namespace muster
