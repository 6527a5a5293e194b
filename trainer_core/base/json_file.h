// JSON from a file that somebody else wrote.
#pragma once

#include <cstddef>
#include <string>

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

}  // namespace muster::trainer
