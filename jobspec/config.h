// Collects a job's settings by MaxText's rules of precedence, from base.yml and the files that
// inherit from it, the model's file, environment variables M_<KEY>, and key=value words of the
// command line. Reads files; starts no process.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

#include "jobspec/dialects/dialect.h"
#include "jobspec/settings/settings.h"

namespace muster::jobspec {

// The sources of a config.
struct ConfigSource {
  std::string path;                    // path of the .yml file
  std::vector<FlagSetting> flags;      // flags of Pax or AXLearn (dialect.h)
  std::vector<std::string> overrides;  // "key=value"; the last of a repeated key wins
  // All variables of the process; only M_* are used.
  Environment environment;
  // Path of Muster's own base.yml; may be empty. It replaces a missing configs/base.yml, with a
  // note, and its models are used if another base.yml has no folder of models.
  std::string shipped_base = {};
  // Moves compile_topology and compile_topology_num_slices from the settings to Config: only
  // `muster plan` uses them.
  bool is_for_plan = false;
};

// The collected settings.
struct Config {
  Settings settings;  // every key of the table that is set
  Settings base;      // the values of the root base.yml
  std::string root;   // path of the root base.yml
  // Keys to which a base.yml of the user's own gives another value than Muster's and MaxText's.
  KeySet edits;
  // `base` with the model's values: the settings of a job for which the user sets nothing
  Settings defaults;
  // the note if Muster's own base.yml replaces a missing one; else empty
  std::string shipped_base_note;
  // compile_topology and compile_topology_num_slices, with ConfigSource::is_for_plan
  std::string planned_topology = {};
  int64_t planned_slices = -1;
  std::vector<std::string> warnings;  // one sentence each
};

// Return the folders with descriptions of machines (topology.h) and with calibrations
// (calibration.h), in the order in which they are searched: that beside the root base.yml, and that
// beside Muster's own base.yml, whose path is `shipped_base`.
std::vector<std::string> topology_folders(const Config& config, const std::string& shipped_base);
std::vector<std::string> calibration_folders(const Config& config, const std::string& shipped_base);

// Loads a config. Returns InvalidArgument or NotFound with one sentence that names the file and
// line, or the key, its value and what is allowed. Checks the allowed values of single keys;
// resolve_job() checks combinations of keys.
absl::StatusOr<Config> load_config(const ConfigSource& source);

}  // namespace muster::jobspec
