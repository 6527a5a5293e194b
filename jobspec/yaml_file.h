// One YAML file of settings: a flat map from key to scalar or list, with line numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::jobspec {

// MaxText's largest base.yml has 80 KiB.
constexpr size_t kYamlBytesMax = 1 << 20;

struct YamlEntry {
  std::string key;
  int line = 0;  // from 1
  bool is_scalar = true;
  std::string text;      // if it is a scalar
  nlohmann::json value;  // if it is a list or map, whose scalars are strings
};

// NotFound, or InvalidArgument with "path:line: the problem": not YAML, not a map, a key twice.
absl::StatusOr<std::vector<YamlEntry>> read_yaml_file(const std::string& path);

// Parses a YAML flow sequence, with its scalars as strings. InvalidArgument for other text.
absl::StatusOr<nlohmann::json> parse_yaml_list(std::string_view text);

}  // namespace muster::jobspec
