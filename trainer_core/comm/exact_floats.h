// Encodes integers and doubles as fp32 values, so that collectives of fp32 can transfer them.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>

namespace muster::trainer {

// The number of fp32 elements that encode a 64-bit integer.
constexpr size_t kFloatsPerU64 = 4;

// Encodes an integer with 16 bits per element, which fp32 represents exactly.
inline std::array<float, kFloatsPerU64> floats_of_u64(uint64_t value) {
  std::array<float, kFloatsPerU64> out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(value >> (16 * i) & 0xFFFF);
  return out;
}
// Decodes the result of floats_of_u64().
inline uint64_t u64_of_floats(std::span<const float> in) {
  uint64_t value = 0;
  for (size_t i = 0; i < kFloatsPerU64; ++i) value |= static_cast<uint64_t>(in[i]) << (16 * i);
  return value;
}

// Encodes a double as a coarse and a fine part. The sums of the parts over ranks preserve about 45
// bits of the sum.
inline std::array<float, 2> split_double(double value) {
  const auto coarse = static_cast<float>(value);
  return {coarse,
          std::isfinite(coarse) ? static_cast<float>(value - static_cast<double>(coarse)) : 0.0F};
}
// Decodes the result of split_double(), or a sum of such results.
inline double join_double(std::span<const float> parts) {
  return static_cast<double>(parts[0]) + static_cast<double>(parts[1]);
}

// Encodes a double, such as a log-probability, of a magnitude below 2^24: its integer, its fraction
// in units of 2^-16, and the rest. Sums of the first two parts over up to 512 ranks are exact, as
// long as the sum is below 2^24, so that its error is below 2^-30 whatever the order of the ranks.
inline std::array<float, 3> split_units(double value) {
  constexpr double kUnit = 0x1p-16;
  const auto whole = static_cast<float>(std::rint(value));
  const double fraction = value - static_cast<double>(whole);
  const auto units = static_cast<float>(std::rint(fraction / kUnit) * kUnit);
  return {whole, units, static_cast<float>(fraction - static_cast<double>(units))};
}
// Decodes the result of split_units(), or a sum of such results.
inline double join_units(std::span<const float> parts) {
  return static_cast<double>(parts[0]) + static_cast<double>(parts[1]) +
         static_cast<double>(parts[2]);
}

// Encodes a double in [0, 2^300), such as a sum of squares of fp32 values, that may be outside the
// range of fp32. Values of at least kWideLarge are scaled down and use the last two elements; other
// values use the first two. So a sum of encodings over ranks is valid, too. NaN and infinity are
// preserved.
constexpr double kWideLarge = 0x1p96, kWideScale = 0x1p-180;
// Returns the encoding of `value`.
inline std::array<float, 4> split_wide(double value) {
  const bool is_small = value < kWideLarge;
  const auto parts = split_double(is_small ? value : value * kWideScale);
  return is_small ? std::array{parts[0], parts[1], 0.0F, 0.0F}
                  : std::array{0.0F, 0.0F, parts[0], parts[1]};
}
// Decodes the result of split_wide(), or a sum of such results.
inline double join_wide(std::span<const float> parts) {
  return join_double(parts) + join_double(parts.subspan(2)) / kWideScale;
}

}  // namespace muster::trainer
