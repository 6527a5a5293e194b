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
  std::string text;      // of a scalar
  nlohmann::json value;  // of a list or map; scalars in it are strings
};

// NotFound, or InvalidArgument with "path:line: what is wrong": not YAML, not a map, a key twice.
absl::StatusOr<std::vector<YamlEntry>> read_yaml_file(const std::string& path);

// A YAML flow sequence, its scalars as strings. InvalidArgument when it is none.
absl::StatusOr<nlohmann::json> parse_yaml_list(std::string_view text);

}  // namespace muster::jobspec
