// Collects a job's settings: base.yml and what inherits from it, the model's file, the environment's
// M_<KEY>, and key=value from the command line, by MaxText's rules of precedence. Reads files; starts nothing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/dialect.h"
#include "jobspec/settings.h"

namespace muster::jobspec {

struct ConfigSource {
  std::string path;                    // the .yml
  std::vector<FlagSetting> flags;      // of Pax or AXLearn; dialect.h
  std::vector<std::string> overrides;  // "key=value"; the last of a repeated key counts
  std::vector<std::pair<std::string, std::string>> environment;  // every variable; only M_* is read
  // In place of a base.yml of MaxText's that is not there, with a warning; may be empty.
  std::string shipped_base = {};
};

struct Config {
  Settings settings;                  // every key of the table that anything has set
  Settings base;                      // what the root base.yml says
  std::string root;                   // its path
  std::vector<std::string> warnings;  // one sentence each
};

// InvalidArgument or NotFound with one sentence that names the file and line, or the key, its value and
// what would be right. Restricted values are judged here, too; numbers against each other by resolve_job().
absl::StatusOr<Config> load_config(const ConfigSource& source);

}  // namespace muster::jobspec
