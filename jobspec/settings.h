// The settings of one job while they are being collected: key → value and where it came from.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "jobspec/keys.h"
#include "jobspec/yaml_file.h"

namespace muster::jobspec {

// Later layers win over earlier ones. kBaseFile is the root of the base_config chain: what it says is a
// default and not a wish, so it causes no warnings and no conflicts with the model file.
// kFlag: a flag in Pax's or AXLearn's spelling, which key=value overrides.
enum class Layer { kBaseFile, kUserFile, kModelFile, kEnvironment, kFlag, kCommandLine };

struct Setting {
  nlohmann::json value;
  std::string origin;  // "configs/base.yml:12", "command line", "environment M_STEPS"
  Layer layer = Layer::kBaseFile;
};

using Settings = std::map<std::string, Setting, std::less<>>;

// Null when nothing has set the key.
const Setting* find_setting(const Settings& settings, std::string_view key);

// The keys that `name` sets: itself, or an alias's one or two targets. InvalidArgument for an unknown name,
// with the nearest known one; `where` begins the message ("" for the command line).
absl::StatusOr<std::vector<const Key*>> keys_named(std::string_view name, std::string_view where);

// Parses `text` for every key that `name` sets, and stores it.
absl::Status set_from_text(Settings& settings, std::string_view name, std::string_view text,
                           const std::string& origin, Layer layer);

// The same for one entry of the file at `path`.
absl::Status set_from_entry(Settings& settings, const std::string& path, const YamlEntry& entry,
                            Layer layer);

}  // namespace muster::jobspec
