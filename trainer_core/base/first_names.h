// Lists names in a message.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace muster::trainer {

// Returns "a, b, c", or "a, b, …" if there are more names than `shown_max`.
inline std::string first_names(const std::vector<std::string>& names, size_t shown_max) {
  const size_t count = std::min(names.size(), shown_max);
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(count), ", "),
      count < names.size() ? ", …" : "");
}

}  // namespace muster::trainer
