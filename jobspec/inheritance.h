// Configs that build on other files: base_config names a file or a list, in which later files win.
// Reads files.
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
  // Each file once, after its parents: later ones win, and the last is the requested one.
  std::vector<ConfigFile> files;
  std::vector<std::string> warnings;
};

// Looks up a parent beside the file that names it, then in the working directory. `shipped_base`
// (may be empty) replaces, with a warning, a base.yml that is in neither place. InvalidArgument or
// NotFound names the file and line.
absl::StatusOr<Inheritance> read_with_parents(const std::string& path,
                                              std::string_view shipped_base);

// Returns the warning that our base.yml replaces `missing`, one of MaxText's.
std::string taking_shipped_base(std::string_view missing, std::string_view shipped_base);

}  // namespace muster::jobspec
