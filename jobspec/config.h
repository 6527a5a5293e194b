// Collects a job's settings by MaxText's rules of precedence: base.yml and the files that inherit
// from it, the model's file, the environment's M_<KEY>, and key=value from the command line. Reads
// files; starts nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/dialect.h"
#include "jobspec/settings.h"

namespace muster::jobspec {

struct ConfigSource {
  std::string path;                    // the .yml file
  std::vector<FlagSetting> flags;      // flags of Pax or AXLearn (dialect.h)
  std::vector<std::string> overrides;  // "key=value"; the last of a repeated key wins
  // All variables; only M_* are used.
  Environment environment;
  // Replaces a missing configs/base.yml, with a note, and the models of a base.yml without any; may
  // be empty.
  std::string shipped_base = {};
};

struct Config {
  Settings settings;                  // every key of the table that is set
  Settings base;                      // the values of the root base.yml
  std::string root;                   // path of the root base.yml
  Settings defaults;                  // the same with the model's values: the job without requests
  std::string shipped_base_note;      // if the shipped base.yml replaces a missing one; else empty
  std::vector<std::string> warnings;  // one sentence each
};

// InvalidArgument or NotFound with one sentence that names the file and line, or the key, its value
// and what is allowed. Checks restricted values; resolve_job() checks values against each other.
absl::StatusOr<Config> load_config(const ConfigSource& source);

}  // namespace muster::jobspec
