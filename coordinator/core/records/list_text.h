// Abbreviates lists of names in reasons.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace muster::coordinator {

// The maximum number of names in a list, because a reason is one line.
constexpr size_t kNamedMax = 3;

// Returns the first names and the number of the others: "node1, node2, node3 and 5 more".
inline std::string list_text(const std::vector<std::string>& names, size_t named_max = kNamedMax) {
  const size_t named = std::min(names.size(), named_max);
  const size_t more = names.size() - named;
  return absl::StrCat(
      absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(named), ", "),
      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

}  // namespace muster::coordinator
