// "Did you mean": finds the candidate closest to a misspelt name.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace muster {

// Returns the candidate with the smallest Damerau-Levenshtein distance to `name` (optimal string
// alignment, case-insensitive). Returns an empty view if none is close: the distance must be at
// most a third of the longer length, or 1. Ties go to the earlier candidate. The view refers into
// `candidates`.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates);

// Returns the `count` closest candidates (or all), the closest first, however far they are.
std::vector<std::string_view> closest_names(std::string_view name,
                                            std::span<const std::string_view> candidates,
                                            size_t count);

}  // namespace muster
