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

// Who has set a key. kBaseFile is the first of the files that inherit from each other: what it says is a default and not a
// wish, so it causes no warnings and no conflicts with the model file. kFlag: a flag in Pax's or AXLearn's spelling.
// Which one wins is load_config()'s: settings are stored in the order of docs/config.md, and apply_model_file() comes last.
enum class Layer { kBaseFile, kModelFile, kUserFile, kEnvironment, kFlag, kCommandLine };

struct Setting {
  nlohmann::json value;
  std::string origin;  // "configs/base.yml:12", "command line", "environment M_STEPS"
  Layer layer = Layer::kBaseFile;
};

// The origin of key=value.
inline constexpr char kCommandLine[] = "command line";

// " (configs/base.yml:12)", for a sentence; empty for what was typed as key=value.
std::string shown_origin(const Setting& setting);

using Settings = std::map<std::string, Setting, std::less<>>;

// Null when nothing has set the key.
const Setting* find_setting(const Settings& settings, std::string_view key);

// The keys that `name` sets: itself, or an alias's one or two targets. InvalidArgument for an unknown name,
// with the nearest known one; `where` begins the message ("" for the command line).
absl::StatusOr<std::vector<const Key*>> keys_named(std::string_view name, std::string_view where);

// Names of keys as one file, or the environment, says them: two names of one key (an alias and its target) are a mistake.
class OncePerKey {
 public:
  // InvalidArgument when an earlier name has set one of the keys that `name` sets. Unknown names pass.
  absl::Status add(std::string_view name, const std::string& origin);

 private:
  struct Said {
    std::string name;
    std::string origin;
  };
  std::map<std::string_view, Said> said_;  // by key
};

// Parses `text` for every key that `name` sets, and stores it.
absl::Status set_from_text(Settings& settings, std::string_view name, std::string_view text,
                           const std::string& origin, Layer layer);

// The same for one entry of the file at `path`; MaxText's block `lora` has keys of its own.
absl::Status set_from_entry(Settings& settings, const std::string& path, const YamlEntry& entry,
                            Layer layer);

}  // namespace muster::jobspec
