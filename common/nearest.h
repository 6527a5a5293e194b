// "Did you mean": the candidate that a person most likely meant by a misspelt name.
#pragma once

#include <span>
#include <string_view>

namespace muster {

// The candidate with the smallest Damerau-Levenshtein distance (optimal string alignment; capitals count as small
// letters) to `name`, or an empty view when none is close enough to be helpful (distance above a third of the longer
// length, and at least 2). Ties go to the earlier candidate. The view refers into `candidates`.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

}  // namespace muster
