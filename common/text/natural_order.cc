#include "common/text/natural_order.h"

#include <cstddef>

#include <absl/strings/ascii.h>

namespace muster {
namespace {

// Returns the digits at the front of `text` without leading zeros.
std::string_view digits_at_front(std::string_view text, size_t* length) {
  size_t end = 0;
  while (end < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[end]))) ++end;
  *length = end;
  size_t first = 0;
  while (first + 1 < end && text[first] == '0') ++first;
  return text.substr(0, end).substr(first < end ? first : end);
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) {
  std::string_view x = a;
  std::string_view y = b;
  while (!x.empty() && !y.empty()) {
    size_t x_length = 0;
    size_t y_length = 0;
    const std::string_view x_digits = digits_at_front(x, &x_length);
    const std::string_view y_digits = digits_at_front(y, &y_length);
    if (x_length > 0 && y_length > 0) {
      if (x_digits.size() != y_digits.size()) return x_digits.size() < y_digits.size();
      if (x_digits != y_digits) return x_digits < y_digits;
      x.remove_prefix(x_length);
      y.remove_prefix(y_length);
      continue;
    }
    if (x.front() != y.front()) return x.front() < y.front();
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  if (x.empty() != y.empty()) return x.empty();
  return a < b;
}

}  // namespace muster
