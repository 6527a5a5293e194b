// Turns words into a metric label's value.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace muster::coordinator {

// "slow rank" → "slow_rank".
inline std::string metric_label(std::string_view words) {
  std::string label(words);
  std::replace(label.begin(), label.end(), ' ', '_');
  return label;
}

}  // namespace muster::coordinator
