// Medians, and the spread of values around them. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace muster::coordinator {

// The median absolute deviation (MAD) of a normal distribution with deviation 1.
inline constexpr double kMadOfNormal = 0.6745;

// The middle value that is taken of an even number of values.
enum class Middle { kLower, kUpper };

// Returns the median, and reorders the values. Requires a value.
inline double median_of(std::span<double> values, Middle which = Middle::kLower) {
  const size_t index = which == Middle::kLower ? (values.size() - 1) / 2 : values.size() / 2;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace muster::coordinator
