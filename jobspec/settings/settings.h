// The settings of one job while they are collected: for each key, its value and the value's origin.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "jobspec/files/yaml_file.h"
#include "jobspec/settings/keys.h"

namespace muster::jobspec {

// The source of a setting. kBaseFile: the base.yml at the root of the inheritance; its values are
// defaults and no requests of the user, so they cause no warnings and no conflicts with the model's
// file. kFlag: a flag of Pax or AXLearn. load_config() determines which source wins: it stores
// settings in the order of docs/config.md, and calls apply_model_file() last.
enum class Layer { kBaseFile, kModelFile, kUserFile, kEnvironment, kFlag, kCommandLine };

// The value of one key.
struct Setting {
  nlohmann::json value;
  std::string origin;  // "configs/base.yml:12", "command line", "environment M_STEPS"
  Layer layer = Layer::kBaseFile;
  // The user's value, if `value` replaces it: "tpu" for hardware=tpu, where `value` is "auto". Else
  // null.
  nlohmann::json written = {};
};

// Returns whether a user has set the value, neither the root base.yml nor a model's file.
inline bool is_of_user(const Setting& setting) {
  return setting.layer != Layer::kBaseFile && setting.layer != Layer::kModelFile;
}

// The origin of settings by key=value words.
inline constexpr char kCommandLine[] = "command line";

// Returns " (configs/base.yml:12)" for use in a sentence; "" for key=value on the command line.
std::string shown_origin(const Setting& setting);

using Settings = std::map<std::string, Setting, std::less<>>;

// Names of keys.
using KeySet = std::set<std::string, std::less<>>;

// Returns the setting of `key`; null if the key is not set.
const Setting* find_setting(const Settings& settings, std::string_view key);

// Returns the keys that `name` sets: the key of that name, or the one or two targets of an alias.
// Returns InvalidArgument, with the nearest known name, for an unknown name. `where`: the beginning
// of the message, "" for the command line.
absl::StatusOr<std::vector<const Key*>> keys_named(std::string_view name, std::string_view where);

// Detects a key that is set twice in one file or in the environment, by its name and an alias.
class OncePerKey {
 public:
  // Records that `name` is set. Returns InvalidArgument if an earlier name has set one of the same
  // keys. Ignores unknown names.
  absl::Status add(std::string_view name, const std::string& origin);

 private:
  struct Seen {
    std::string name;
    std::string origin;
  };
  std::map<std::string_view, Seen> seen_;  // names and origins by key
};

// Parses `text` for every key that `name` sets, and stores the values.
absl::Status set_from_text(Settings& settings, std::string_view name, std::string_view text,
                           const std::string& origin, Layer layer);

// Stores the values of one entry of the file at `path`. MaxText's block `lora` contains several
// keys.
absl::Status set_from_entry(Settings& settings, const std::string& path, const YamlEntry& entry,
                            Layer layer);

}  // namespace muster::jobspec
