#include "trainer_core/checkpoint/stored_tensor.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "trainer_core/base/bf16.h"
#include "trainer_core/base/check.h"

namespace muster::trainer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are copied as they are in memory");

float from_bf16(uint16_t bits) { return Bf16{bits}.value(); }
uint16_t to_bf16(float value) { return Bf16::round(value).bits; }

// IEEE 754 binary16: 1 sign, 5 exponent, 10 fraction bits; fp32 has 8 and 23.
constexpr int kFractionDifference = 23 - 10;
constexpr uint32_t kBiasDifference = 127 - 15;

float from_f16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  constexpr uint32_t kInfinite = 0x1F;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == kInfinite ? 0xFFU : exponent + kBiasDifference;
  return std::bit_cast<float>(sign | wide << 23 | fraction << kFractionDifference);
}

uint16_t to_f16(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((word >> 16) & 0x8000U);
  const uint32_t magnitude = word & 0x7FFFFFFFU;
  constexpr uint32_t kInfinity32 = 0x7F800000U, kInfinity16 = 0x7C00U;
  constexpr uint32_t kSmallestNormal = (kBiasDifference + 1) << 23;  // 2^-14
  if (magnitude > kInfinity32) {                                     // infinity or NaN
    const uint32_t fraction = (magnitude >> kFractionDifference) & 0x3FFU;
    return static_cast<uint16_t>(sign | kInfinity16 | (fraction == 0 ? 1U : fraction));
  }
  // Subnormal: a multiple of 2^-24; rounding may give the smallest normal value.
  if (magnitude < kSmallestNormal) {
    const float scaled = std::bit_cast<float>(magnitude) * 0x1p24F;
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyintf(scaled)));
  }
  const uint32_t odd = (magnitude >> kFractionDifference) & 1U;
  const uint32_t rounded = magnitude + 0xFFFU + odd;
  const uint32_t half = (rounded - (kBiasDifference << 23)) >> kFractionDifference;
  return static_cast<uint16_t>(sign | (half < kInfinity16 ? half : kInfinity16));
}

template <class Convert>
void widen_with(Convert convert, const char* from, std::span<float> out) {
  for (float& value : out) {
    uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof(bits));
    value = convert(bits);
    from += sizeof(bits);
  }
}

template <class Convert>
void narrow_with(Convert convert, std::span<const float> from, char* out) {
  for (const float value : from) {
    const uint16_t bits = convert(value);
    std::memcpy(out, &bits, sizeof(bits));
    out += sizeof(bits);
  }
}

}  // namespace

std::string_view type_name(StoredType type) {
  switch (type) {
    case StoredType::kF32:
      return "float32";
    case StoredType::kBf16:
      return "bfloat16";
    case StoredType::kF16:
      return "float16";
    case StoredType::kOther:
      break;
  }
  return "another type";
}

std::string show_shape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

void widen(const char* from, StoredType type, std::span<float> out) {
  MUSTER_CHECK(type != StoredType::kOther) << "elements of a type that is not read";
  if (type == StoredType::kF32) {
    if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
  } else if (type == StoredType::kBf16) {
    widen_with(from_bf16, from, out);
  } else {
    widen_with(from_f16, from, out);
  }
}

void narrow(std::span<const float> from, StoredType type, char* out) {
  MUSTER_CHECK(type != StoredType::kOther) << "elements of a type that is not written";
  if (type == StoredType::kF32) {
    if (!from.empty()) std::memcpy(out, from.data(), from.size_bytes());
  } else if (type == StoredType::kBf16) {
    narrow_with(to_bf16, from, out);
  } else {
    narrow_with(to_f16, from, out);
  }
}

}  // namespace muster::trainer
