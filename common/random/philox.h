// Philox4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC11). A value depends on (key, counter) alone, so initial weights,
// dropout and the order of data are the same on any mesh, on any backend and after any restart.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace muster {

struct Philox {
  using Block = std::array<uint32_t, 4>;

  uint64_t key = 0;  // the seed
  // the purpose of the numbers: a tensor, a layer's dropout, an epoch's shuffle
  uint64_t stream = 0;

  // Returns four independent uniform 32-bit words for position `index` of the stream.
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

  // Writes the words of positions first, first + 1, … as operator() returns them. Computes many
  // blocks side by side in vector registers.
  template <size_t kWords>
  constexpr void fill(uint64_t first, std::span<uint32_t, kWords> words) const {
    static_assert(kWords % 4 == 0);
    constexpr size_t kBlocks = kWords / 4;
    std::array<std::array<uint32_t, kBlocks>, 4> c{};
    for (size_t i = 0; i < kBlocks; ++i) {
      c[0][i] = static_cast<uint32_t>(first + i);
      c[1][i] = static_cast<uint32_t>((first + i) >> 32);
      c[2][i] = static_cast<uint32_t>(stream);
      c[3][i] = static_cast<uint32_t>(stream >> 32);
    }
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < kBlocks; ++i) {
        const uint64_t p0 = uint64_t{kM0} * c[0][i];
        const uint64_t p1 = uint64_t{kM1} * c[2][i];
        c[0][i] = static_cast<uint32_t>(p1 >> 32) ^ c[1][i] ^ k0;
        c[1][i] = static_cast<uint32_t>(p1);
        c[2][i] = static_cast<uint32_t>(p0 >> 32) ^ c[3][i] ^ k1;
        c[3][i] = static_cast<uint32_t>(p0);
      }
      k0 += kW0;
      k1 += kW1;
    }
    for (size_t i = 0; i < kBlocks; ++i) {
      for (size_t j = 0; j < 4; ++j) words[4 * i + j] = c[j][i];
    }
  }

  // Public for code that implements the rounds with vector intrinsics
  // (trainer_core/ops/cpu/dropout.cc).
  static constexpr int kRounds = 10;
  static constexpr uint32_t kM0 = 0xD2511F53, kM1 = 0xCD9E8D57;
  static constexpr uint32_t kW0 = 0x9E3779B9, kW1 = 0xBB67AE85;
};

// Returns a uniform value in (0, 1): (k + 1/2) 2^-23, where k is the upper 23 bits of `bits`. The
// value reaches neither bound, so its logarithm is finite.
constexpr float uniform_from_bits(uint32_t bits) {
  return (static_cast<float>(bits >> 9) + 0.5F) * 0x1p-23F;
}

}  // namespace muster
