// Numbers in names of files and folders that this product writes.
#pragma once

#include <optional>
#include <string_view>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster {

// Returns the integer that `text` is; nullopt unless StrCat() writes the number as exactly `text`.
// "0006", "+6", "-0" and " 6" are names of other programs' files, for example copies.
template <class Integer>
std::optional<Integer> canonical_number(std::string_view text) {
  Integer number = 0;
  if (!absl::SimpleAtoi(av(text), &number) || absl::StrCat(number) != av(text)) return std::nullopt;
  return number;
}

}  // namespace muster
