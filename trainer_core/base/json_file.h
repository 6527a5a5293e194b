// JSON from a file that somebody else wrote.
#pragma once

#include <cstddef>
#include <string>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::trainer {

// NotFound, or InvalidArgument naming the file: larger than `bytes_max`, not a regular file, or not JSON.
absl::StatusOr<nlohmann::json> read_json_file(const std::string& path, size_t bytes_max);

}  // namespace muster::trainer
