// Reading of JSON files that may be damaged or hostile.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::trainer {

// Maximum nesting of objects and lists. It bounds the stack of code that walks a value recursively;
// configs and token lists need far less.
constexpr int kJsonDepthMax = 16;

// Reads a file as JSON. Returns the system's error if it cannot be opened, and InvalidArgument with
// the path if it is not a regular file, is larger than `bytes_max`, is not JSON, or is nested
// deeper than kJsonDepthMax.
absl::StatusOr<nlohmann::json> read_json_file(const std::string& path, size_t bytes_max);

// Formats a value for an error message: as JSON, truncated if long; only its type if it is nested
// deeper than kJsonDepthMax.
std::string show_json(const nlohmann::json& value);

// Returns the value as an integer of type T. Throws std::out_of_range with the value or its type if
// it is not an integer that fits: get<T>() of the JSON library would convert a fraction, and the
// conversion of a fraction that is too large is undefined behaviour. Callers catch
// std::out_of_range together with the exceptions of the JSON library.
template <std::integral T>
T whole_number(const nlohmann::json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<T>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  if (!fits) {
    const std::string what = value.is_number() ? show_json(value) : value.type_name();
    throw std::out_of_range(what + ", where a whole number must be");
  }
  return value.get<T>();
}

}  // namespace muster::trainer
