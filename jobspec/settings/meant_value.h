// "Did you mean" for the values of keys that have a fixed list of values.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace muster::jobspec {

// Returns the value of `values` that a user means by `word`: the value that a common short name
// stands for (bf16, fp32, cuda), one that begins with the word, or the nearest one. Returns an
// empty view if there is none, or if it is the empty value. The view refers into `values`.
std::string_view meant_value(std::string_view word, std::span<const std::string_view> values);

// Returns "; did you mean dtype=bfloat16?" for the end of an error message; empty if no value of
// `values` is meant.
std::string suggestion(std::string_view key, std::string_view word,
                       std::span<const std::string_view> values);

}  // namespace muster::jobspec
