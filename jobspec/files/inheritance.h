// Reads configs that inherit from other files. The key base_config names a file, or a list of files
// of which later ones win.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/files/yaml_file.h"

namespace muster::jobspec {

// The settings of one file.
struct ConfigFile {
  std::string path;
  std::vector<YamlEntry> entries;  // without base_config
};

// A config and the files from which it inherits.
struct Inheritance {
  // Each file once, after the files from which it inherits. Later files win; the last one is the
  // requested file.
  std::vector<ConfigFile> files;
  // the note if Muster's own base.yml replaces a missing one; else empty
  std::string shipped_base_note;
};

// Reads the file at `path` and the files from which it inherits. Searches such a file beside the
// file that names it, then in the working directory. `shipped_base`: the path of Muster's own
// base.yml, which replaces a base.yml that is in neither place; may be empty. Returns
// InvalidArgument or NotFound, with the file and line.
absl::StatusOr<Inheritance> read_with_parents(const std::string& path,
                                              std::string_view shipped_base);

// Returns the note that states that `shipped_base` replaces the missing file `missing`.
std::string taking_shipped_base(std::string_view missing, std::string_view shipped_base);

}  // namespace muster::jobspec
