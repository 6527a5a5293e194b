// The rule for names of environment variables: [A-Za-z_][A-Za-z0-9_]* (POSIX). Programs drop or
// misread other names.
#pragma once

#include <algorithm>
#include <string_view>

namespace muster {

inline constexpr std::string_view kVariableNameRule =
    "a name is letters, digits and _, and does not begin with a digit";

// Returns whether `name` is a valid name of an environment variable.
constexpr bool is_variable_name(std::string_view name) {
  const auto is_digit = [](char c) { return '0' <= c && c <= '9'; };
  const auto is_good = [&](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '_' || is_digit(c);
  };
  return !name.empty() && !is_digit(name.front()) && std::all_of(name.begin(), name.end(), is_good);
}

}  // namespace muster
