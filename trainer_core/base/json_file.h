// Reads JSON from a file of unknown origin.
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

// Maximum nesting of objects and lists: configs and token lists are far below it, and code that
// walks a value recurses.
constexpr int kJsonDepthMax = 16;

// Returns the error of the open, or InvalidArgument naming the file: not a regular file, larger
// than `bytes_max`, not JSON, or nested deeper than kJsonDepthMax.
absl::StatusOr<nlohmann::json> read_json_file(const std::string& path, size_t bytes_max);

// Formats a value for an error message: as JSON, truncated if long.
std::string show_json(const nlohmann::json& value);

// Returns an integer that fits T. Otherwise throws std::out_of_range with the value or its type:
// the library would convert a fraction, which is undefined in C++ if it is too large. For readers
// that also catch the library's exceptions.
template <std::integral T>
T whole_number(const nlohmann::json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<T>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  if (!fits) {
    // Prints only the type of a list: it may be nested deeper than the stack allows.
    const std::string what = value.is_number() ? show_json(value) : value.type_name();
    throw std::out_of_range(what + ", where a whole number must be");
  }
  return value.get<T>();
}

}  // namespace muster::trainer
