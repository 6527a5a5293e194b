// A bfloat16 value: the upper 16 bits of an fp32 value. It is only stored; arithmetic is done in
// fp32.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace muster::trainer {

struct Bf16 {
  uint16_t bits = 0;

  // Rounds to nearest, ties to even. NaN stays NaN; magnitudes that round beyond the largest finite
  // value become infinite.
  static constexpr Bf16 round(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    constexpr uint32_t kInfinity = 0x7f800000, kMagnitude = 0x7fffffff, kQuiet = 0x400000;
    if ((word & kMagnitude) > kInfinity) return {static_cast<uint16_t>((word | kQuiet) >> 16)};
    return {static_cast<uint16_t>((word + 0x7fff + ((word >> 16) & 1)) >> 16)};
  }

  constexpr float value() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

static_assert(sizeof(Bf16) == 2);

// Conversions between fp32 and an element type that is float or Bf16, for templates over both.
constexpr float to_float(float value) { return value; }
constexpr float to_float(Bf16 value) { return value.value(); }
template <class T>
constexpr T from_float(float value) {
  if constexpr (std::is_same_v<T, Bf16>) {
    return Bf16::round(value);
  } else {
    return value;
  }
}

}  // namespace muster::trainer
