// Converts words to the value of a metric label.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace muster::coordinator {

// Returns "slow_rank" for "slow rank".
inline std::string metric_label(std::string_view words) {
  std::string label(words);
  std::replace(label.begin(), label.end(), ' ', '_');
  return label;
}

}  // namespace muster::coordinator
