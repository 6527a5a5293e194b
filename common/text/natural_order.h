// The natural order of names that contain numbers, such as cluster nodes and data set shards. Pure.
#pragma once

#include <string_view>

namespace muster {

// Returns whether `a` is ordered before `b`. Numbers in names are compared by value, so node7 is
// before node66. Names that differ only in leading zeros are ordered as text, which makes this a
// strict total order.
bool natural_less(std::string_view a, std::string_view b);

}  // namespace muster
