// Human order of names that end in numbers: cluster nodes, data set shards. Pure.
#pragma once

#include <string_view>

namespace muster {

// Compares digits by value, so node7 comes before node66. Names that differ only in leading zeros
// are ordered as text, which makes this a strict total order.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace muster
