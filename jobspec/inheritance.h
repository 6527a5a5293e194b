// Files that build on others: base_config names one or a list of which later ones win. Reads files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/yaml_file.h"

namespace muster::jobspec {

struct ConfigFile {
  std::string path;
  std::vector<YamlEntry> entries;  // without base_config
};

struct Inheritance {
  std::vector<ConfigFile>
      files;  // each once, after those that it builds on: later ones win, the last is the one asked for
  std::vector<std::string> warnings;
};

// What is named is looked up beside the file that names it, then as the shell would; `shipped_base` (may be empty) stands in,
// with a warning, for a base.yml that is in neither place. InvalidArgument or NotFound names the file and line.
absl::StatusOr<Inheritance> read_with_parents(const std::string& path,
                                              std::string_view shipped_base);

// The warning for `missing`, a base.yml of MaxText's, in whose place ours is taken.
std::string taking_shipped_base(std::string_view missing, std::string_view shipped_base);

}  // namespace muster::jobspec
