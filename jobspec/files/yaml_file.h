// Reads a YAML file of settings: a map whose values are scalars, lists or maps, with line numbers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

namespace muster::jobspec {

// Maximum size of a file; MaxText's largest base.yml has 80 KiB.
constexpr size_t kYamlBytesMax = 1 << 20;

// One setting of a file.
struct YamlEntry {
  std::string key;
  int line = 0;  // line number, from 1 on
  bool is_scalar = true;
  std::string text;      // the value if it is a scalar
  nlohmann::json value;  // the value if it is a list or map; its scalars are strings
};

// Returns the entries in the file's order. Returns NotFound if there is no such file, and
// InvalidArgument "path:line: the problem" if it is not YAML or not a map, or has a key twice.
absl::StatusOr<std::vector<YamlEntry>> read_yaml_file(const std::string& path);

// Parses a YAML flow sequence such as [a, b]; its scalars become strings. Returns InvalidArgument
// for other text.
absl::StatusOr<nlohmann::json> parse_yaml_list(std::string_view text);

}  // namespace muster::jobspec
