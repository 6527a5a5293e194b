// Finds a field of a JSON object without judging the others: a field without readers may hold an
// integer of any size, 1e400, Python's NaN and Infinity, or text that is not UTF-8.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace muster::trainer {

// An object's members as they stand in the text: names with quotes and escapes, values from their
// first to their last character.
struct LooseObject {
  std::vector<std::pair<std::string_view, std::string_view>> members;
};

// Returns false if `text` is not a single object: brackets, commas, colons and strings must match,
// and every other value must be a number of any size or a word for a missing value: true, false,
// null, NaN, Infinity, -Infinity, inf, None, undefined. Does not recurse.
bool parse_loosely(std::string_view text, LooseObject& object);

}  // namespace muster::trainer
