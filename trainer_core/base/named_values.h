// Enums whose values have names in configs: beside each enum stands an array of the names in the
// enum's order.
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
