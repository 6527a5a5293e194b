// Reads configs that build on other files: base_config names a file or a list, in which later files
// win.
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
  // Each file once, after its parents. Later files win; the last one is the requested file.
  std::vector<ConfigFile> files;
  std::string shipped_base_note;  // if the shipped base.yml replaces another; else empty
};

// Looks up a parent beside the file that names it, then in the working directory. `shipped_base`
// (may be empty) replaces, with a note, a base.yml that is in neither place. InvalidArgument or
// NotFound names the file and line.
absl::StatusOr<Inheritance> read_with_parents(const std::string& path,
                                              std::string_view shipped_base);

// Returns the note that `shipped_base` is used instead of `missing`, which does not exist.
std::string taking_shipped_base(std::string_view missing, std::string_view shipped_base);

}  // namespace muster::jobspec
