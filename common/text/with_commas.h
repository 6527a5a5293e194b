// Thousands separators for large numbers.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

// Returns `number` with thousands separators: "6,738,415,616" for 6738415616.
inline std::string with_commas(int64_t number) {
  const std::string digits = std::to_string(number);
  const size_t first = digits.front() == '-' ? 1 : 0;
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > first && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

}  // namespace muster
