// Numbers that travel through fp32 collectives without losing a bit.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace muster::trainer {

constexpr size_t kFloatsPerU64 = 4;

// 16 bits an element: every one is an integer that fp32 holds exactly.
inline std::array<float, kFloatsPerU64> floats_of_u64(uint64_t value) {
  std::array<float, kFloatsPerU64> out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(value >> (16 * i) & 0xFFFF);
  return out;
}
inline uint64_t u64_of_floats(std::span<const float> in) {
  uint64_t value = 0;
  for (size_t i = 0; i < kFloatsPerU64; ++i) value |= static_cast<uint64_t>(in[i]) << (16 * i);
  return value;
}

// A double as a coarse and a fine part: their sums over ranks keep about 45 bits.
inline std::array<float, 2> split_double(double value) {
  const auto coarse = static_cast<float>(value);
  return {coarse,
          std::isfinite(coarse) ? static_cast<float>(value - static_cast<double>(coarse)) : 0.0F};
}

}  // namespace muster::trainer
