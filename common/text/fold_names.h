// Folds lists of numbered names into ranges, in the form of Slurm's host lists.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace muster {

// Returns the names as a list, in which consecutive names that differ only by their last number
// are one range: "login, node[001-003,7]". The order of the names is kept. Numbers with leading
// zeros join a range only if they have equal width. A list that would exceed `bytes_max` bytes ends
// with the number of names left out: "node[001-512] and 3 more". It has at least one name.
std::string fold_names(std::span<const std::string> names, size_t bytes_max);

}  // namespace muster
