// Encodes integers as fp32 values that collectives transfer without loss.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace muster::trainer {

constexpr size_t kFloatsPerU64 = 4;

// 16 bits per element: fp32 represents every such integer exactly.
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
inline double join_double(std::span<const float> parts) {
  return static_cast<double>(parts[0]) + static_cast<double>(parts[1]);
}

// A number of at least 0 that fp32 may be too small for, as sums of the squares of fp32 numbers are
// (below 2^300): what is large travels scaled down, beside what is not. NaN and infinity stay what
// they are.
constexpr double kWideLarge = 0x1p96, kWideScale = 0x1p-180;
inline std::array<float, 4> split_wide(double value) {
  const bool is_small = value < kWideLarge;
  const auto parts = split_double(is_small ? value : value * kWideScale);
  return is_small ? std::array{parts[0], parts[1], 0.0F, 0.0F}
                  : std::array{0.0F, 0.0F, parts[0], parts[1]};
}
inline double join_wide(std::span<const float> parts) {
  return join_double(parts) + join_double(parts.subspan(2)) / kWideScale;
}

}  // namespace muster::trainer
