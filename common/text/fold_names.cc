#include "common/text/fold_names.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster {
namespace {

// The maximum number of digits of a number in a name, so that it fits in 64 bits.
constexpr size_t kDigitsMax = 18;

// The maximum number of brackets, commas and dashes around the last two ranges of an element.
constexpr size_t kSigns = 5;

// A name as prefix, number and suffix. Names without a number have an empty `digits`.
struct Parts {
  std::string_view prefix, digits, suffix;
};

Parts split(std::string_view name) {
  constexpr std::string_view kDigits = "0123456789";
  const size_t last = name.find_last_of(kDigits);
  if (last == std::string_view::npos) return {name, {}, {}};
  size_t begin = name.find_last_not_of(kDigits, last);
  begin = begin == std::string_view::npos ? 0 : begin + 1;
  if (last + 1 - begin > kDigitsMax) return {name, {}, {}};
  return {name.substr(0, begin), name.substr(begin, last + 1 - begin), name.substr(last + 1)};
}

bool is_same_series(const Parts& a, const Parts& b) {
  return !a.digits.empty() && !b.digits.empty() && a.prefix == b.prefix && a.suffix == b.suffix;
}

bool follows(std::string_view next, std::string_view digits) {
  uint64_t a = 0;
  uint64_t b = 0;
  if (!absl::SimpleAtoi(av(digits), &a) || !absl::SimpleAtoi(av(next), &b) || b != a + 1)
    return false;
  return next.size() == digits.size() || (digits.front() != '0' && next.front() != '0');
}

// Returns the element of the list that begins at `names[begin]`, and sets `end` behind it. The
// element has one name or at most `bytes_max` bytes.
std::string fold_series(std::span<const std::string> names, size_t begin, size_t bytes_max,
                        size_t& end) {
  const Parts first = split(names[begin]);
  end = begin + 1;
  std::string numbers;
  std::string_view from = first.digits;
  std::string_view to = first.digits;
  const auto close = [&] {
    absl::StrAppend(&numbers, numbers.empty() ? "" : ",", av(from));
    if (from != to) absl::StrAppend(&numbers, "-", av(to));
  };
  for (; end < names.size(); ++end) {
    const Parts next = split(names[end]);
    if (!is_same_series(first, next)) break;
    const size_t ranges = numbers.size() + from.size() + to.size() + next.digits.size();
    if (first.prefix.size() + ranges + first.suffix.size() + kSigns > bytes_max) break;
    if (!follows(next.digits, to)) {
      close();
      from = next.digits;
    }
    to = next.digits;
  }
  if (end == begin + 1) return names[begin];
  close();
  return absl::StrCat(av(first.prefix), "[", numbers, "]", av(first.suffix));
}

}  // namespace

std::string fold_names(std::span<const std::string> names, size_t bytes_max) {
  std::string text;
  for (size_t begin = 0; begin < names.size();) {
    size_t end = begin;
    const size_t room = bytes_max - std::min(bytes_max, text.size() + 2);
    const std::string element = fold_series(names, begin, room, end);
    if (!text.empty() && element.size() > room)
      return absl::StrCat(text, " and ", names.size() - begin, " more");
    absl::StrAppend(&text, text.empty() ? "" : ", ", element);
    begin = end;
  }
  return text;
}

}  // namespace muster
