// JSON from a file that somebody else wrote.
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

// Objects and lists within each other: what configs and token lists have is far below, and code that walks a value does so
// by recursion.
constexpr int kJsonDepthMax = 16;

// The error of the open, or InvalidArgument naming the file: no regular file, larger than `bytes_max`, not JSON, or nested
// deeper than kJsonDepthMax.
absl::StatusOr<nlohmann::json> read_json_file(const std::string& path, size_t bytes_max);

// A value for an error message: as JSON, cut when it is long.
std::string show_json(const nlohmann::json& value);

// A whole number that T has. Throws std::out_of_range, with the number or what else it is, for anything else: the library would convert a number with a
// point, which C++ leaves undefined where it is too large. For readers that catch the library's exceptions as well.
template <std::integral T>
T whole_number(const nlohmann::json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<T>(value.get<uint64_t>())
                        : value.is_number_integer() && std::in_range<T>(value.get<int64_t>());
  if (!fits) {
    // Not what is in a list: it may be nested deeper than a stack is.
    const std::string what = value.is_number() ? show_json(value) : value.type_name();
    throw std::out_of_range(what + ", where a whole number must be");
  }
  return value.get<T>();
}

}  // namespace muster::trainer
