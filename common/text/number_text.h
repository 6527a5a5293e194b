// Formats numbers for sentences that users read.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace muster {

// Returns "1 rank" and "3 ranks". `noun` is the singular; its plural ends in -s.
inline std::string counted(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

// Returns `value` with `decimals` digits after the point. A value that would then read as 0 gets
// more digits, so that two significant ones are visible: 0.000042.
inline std::string fixed_text(double value, int decimals) {
  // Values that need more decimals than this are shown as 0, in any unit.
  constexpr int kDecimalsMax = 12;
  const double size = std::abs(value);
  if (std::isfinite(value) && size > 0 && size < 0.5 * std::pow(10, -decimals)) {
    const int leading_zeros = -static_cast<int>(std::floor(std::log10(size))) - 1;
    if (leading_zeros + 2 <= kDecimalsMax) decimals = leading_zeros + 2;
  }
  return absl::StrFormat("%.*f", decimals, value);
}

}  // namespace muster
