// Names of enum values in configs. Each enum has an array of its values' names, in the order of the
// enum.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace muster::trainer {

template <size_t n>
using ValueNames = std::array<std::string_view, n>;

template <class Enum, size_t n>
constexpr std::string_view name_of(const ValueNames<n>& names, Enum value) {
  return names[static_cast<size_t>(value)];
}

// Returns nullopt if no value has that name.
template <class Enum, size_t n>
constexpr std::optional<Enum> value_named(const ValueNames<n>& names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace muster::trainer
