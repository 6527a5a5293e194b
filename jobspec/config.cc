#include "jobspec/config.h"

#include <filesystem>
#include <system_error>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "jobspec/dialects/variables.h"
#include "jobspec/files/inheritance.h"
#include "jobspec/model_file.h"
#include "jobspec/settings/restrictions.h"
#include "jobspec/settings/settings_reader.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

// True for the base.yml of MaxText's scripts and of our examples, which are run from any folder.
bool is_shipped_base_name(const std::string& path) {
  return path == "base.yml" || path == "configs/base.yml" ||
         absl::EndsWith(path, "/configs/base.yml");
}

// Returns the folder with the models of the root base.yml, or of the shipped one if it has none.
std::string config_folder(const Config& config, const std::string& shipped_base) {
  fs::path folder = fs::path(config.root).parent_path();
  std::error_code error;
  if (!shipped_base.empty() && !fs::is_directory(folder / "models", error))
    folder = fs::path(shipped_base).parent_path();
  return folder.empty() ? "." : folder.string();
}

absl::Status apply_file(const ConfigFile& file, Layer layer, Settings& settings) {
  OncePerKey once;
  for (const YamlEntry& entry : file.entries) {
    if (auto status = once.add(entry.key, absl::StrCat(file.path, ":", entry.line)); !status.ok())
      return status;
    absl::Status status = set_from_entry(settings, file.path, entry, layer);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status apply_environment(const ConfigSource& source, Settings& settings) {
  OncePerKey once;
  for (const auto& [name, value] : source.environment) {
    if (!absl::StartsWith(name, "M_")) continue;
    const std::string origin = absl::StrCat("environment ", name);
    if (name != absl::AsciiStrToUpper(name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          origin, ": the variable of a key is in capitals: ", absl::AsciiStrToUpper(name)));
    }
    const std::string key = absl::AsciiStrToLower(name.substr(2));
    if (auto status = once.add(key, origin); !status.ok()) return status;
    absl::Status status = set_from_text(settings, key, value, origin, Layer::kEnvironment);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// MaxText's rule: a key on the command line and in the environment is an error, because neither is
// an obvious winner.
absl::Status check_not_in_environment(std::string_view name, const Settings& settings) {
  const auto keys = keys_named(name, "");
  if (!keys.ok()) return keys.status();
  for (const Key* key : *keys) {
    const Setting* found = find_setting(settings, key->name);
    if (found == nullptr || found->layer != Layer::kEnvironment) continue;
    return absl::InvalidArgumentError(absl::StrCat(av(key->name),
                                                   " is set twice: on the command line and by the ",
                                                   found->origin, "; unset one of them"));
  }
  return absl::OkStatus();
}

absl::Status apply_flags(const ConfigSource& source, Settings& settings) {
  for (const FlagSetting& setting : source.flags) {
    if (auto status = check_not_in_environment(setting.key, settings); !status.ok()) return status;
    auto status = set_from_text(settings, setting.key, setting.text, setting.flag, Layer::kFlag);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status apply_overrides(const ConfigSource& source, Settings& settings) {
  for (const std::string& text : source.overrides) {
    const auto split = split_override(text);
    if (!split.ok()) return split.status();
    if (auto status = check_no_variable(split->first, split->second); !status.ok()) return status;
    if (auto status = check_not_in_environment(split->first, settings); !status.ok()) return status;
    absl::Status status =
        set_from_text(settings, split->first, split->second, kCommandLine, Layer::kCommandLine);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// Replaces the key at the beginning of a message by the flag that the user typed.
absl::Status in_words_of(const Setting& model, const absl::Status& status) {
  absl::string_view message = status.message();
  if (model.layer != Layer::kFlag || !absl::ConsumePrefix(&message, "model_name=")) return status;
  return {status.code(), absl::StrCat(model.origin, "=", message)};
}

absl::Status apply_model(const std::string& shipped_base, Config& config) {
  const Setting* model = find_setting(config.settings, "model_name");
  if (model == nullptr || model->value == "default" || model->value == "") return absl::OkStatus();
  const Setting* override = find_setting(config.settings, "override_model_config");
  ModelRequest request{.config_folder = config_folder(config, shipped_base),
                       .name = model->value.get<std::string>(),
                       .override_model_config = override != nullptr && override->value == true};
  auto warnings = apply_model_file(request, config.settings);
  if (!warnings.ok()) return in_words_of(*model, warnings.status());
  request.override_model_config = true;
  if (auto again = apply_model_file(request, config.defaults); !again.ok()) return again.status();
  for (std::string& warning : *warnings) config.warnings.push_back(std::move(warning));
  return absl::OkStatus();
}

// Moves the keys of `muster plan` out of the settings, in which they have no effect.
void take_planned_machines(Config& config) {
  SettingsReader reader(config.settings);
  reader.read("compile_topology", config.planned_topology);
  reader.read("compile_topology_num_slices", config.planned_slices);
  for (const char* key : {"compile_topology", "compile_topology_num_slices"})
    config.settings.erase(key);
}

// Values of MaxText's base.yml that differ from Muster's. A copy of that file edits nothing.
bool is_of_maxtext(const std::string& key, const nlohmann::json& value) {
  // Descriptions of axes that follow from the axes themselves.
  if (key == "mesh_axes" || key == "logical_axis_rules" || key == "data_sharding") return true;
  if (key == "tokenizer_path")
    return value.is_string() && absl::StartsWith(value.get<std::string>(), "assets/tokenizer");
  if (key == "dataset_type") return value == "c4" || value == "tfds";
  return (key == "hardware" && value == "tpu") || (key == "grain_worker_count" && value == 4);
}

// Returns the keys of the root base.yml with another value than in Muster's own and MaxText's.
// `config`: with the root's settings.
absl::StatusOr<KeySet> find_edits(const std::string& shipped_base, const Config& config) {
  std::error_code error;
  if (shipped_base.empty() || fs::equivalent(config.root, shipped_base, error)) return KeySet();
  const auto shipped = read_with_parents(shipped_base, "");
  if (!shipped.ok()) return shipped.status();
  Settings usual;
  for (const ConfigFile& file : shipped->files) {
    if (auto status = apply_file(file, Layer::kBaseFile, usual); !status.ok()) return status;
  }
  KeySet edits;
  for (const auto& [key, setting] : config.base) {
    const Setting* own = find_setting(usual, key);
    const bool is_same = own != nullptr && own->value == setting.value;
    if (own != nullptr && !is_same && !is_of_maxtext(key, setting.value)) edits.insert(key);
  }
  return edits;
}

// Data that the user names in a base.yml of their own must not be ignored silently.
void warn_of_edited_path(Config& config) {
  const Setting* path = find_setting(config.settings, "dataset_path");
  const Setting* type = find_setting(config.settings, "dataset_type");
  if (path == nullptr || path->layer != Layer::kBaseFile || path->value == "" ||
      !config.edits.contains("dataset_path") || type == nullptr || type->value != "synthetic")
    return;
  config.warnings.push_back(absl::StrCat("dataset_path=", show(path->value), shown_origin(*path),
                                         " has no effect: dataset_type is synthetic",
                                         shown_origin(*type)));
}

// A data set without dataset_type is read as c4, MaxText's default. Without a data set, jobs train
// on synthetic data.
void choose_dataset_type(Settings& settings) {
  const Setting* path = find_setting(settings, "dataset_path");
  const auto type = settings.find("dataset_type");
  if (path == nullptr || path->value == "" || !is_of_user(*path)) return;
  if (type == settings.end() || type->second.layer != Layer::kBaseFile ||
      type->second.value != "synthetic")
    return;
  type->second = {
      .value = "c4", .origin = "MaxText's default for a dataset_path", .layer = Layer::kModelFile};
}

}  // namespace

namespace {

std::vector<std::string> folders_beside(const Config& config, const std::string& shipped_base,
                                        const char* name) {
  std::vector<std::string> folders;
  for (const std::string& base : {config.root, shipped_base}) {
    if (base.empty()) continue;
    const fs::path folder = fs::path(base).parent_path() / name;
    std::error_code error;
    const bool is_known = !folders.empty() && fs::equivalent(folders.front(), folder, error);
    if (!is_known && fs::is_directory(folder, error)) folders.push_back(folder.string());
  }
  return folders;
}

}  // namespace

std::vector<std::string> topology_folders(const Config& config, const std::string& shipped_base) {
  return folders_beside(config, shipped_base, "topologies");
}

std::vector<std::string> calibration_folders(const Config& config,
                                             const std::string& shipped_base) {
  return folders_beside(config, shipped_base, "calibration");
}

absl::StatusOr<Config> load_config(const ConfigSource& source) {
  if (source.path.empty()) {
    return absl::InvalidArgumentError(
        "the path of the config is empty: give configs/base.yml, or a file that inherits from it");
  }
  Config config;
  std::string path = source.path;
  std::error_code error;
  if (!source.shipped_base.empty() && is_shipped_base_name(path) && !fs::exists(path, error)) {
    config.shipped_base_note = taking_shipped_base(path, source.shipped_base);
    path = source.shipped_base;
  }
  auto inheritance = read_with_parents(path, source.shipped_base);
  if (!inheritance.ok()) return inheritance.status();
  if (config.shipped_base_note.empty())
    config.shipped_base_note = std::move(inheritance->shipped_base_note);
  config.root = inheritance->files.front().path;
  for (const ConfigFile& file : inheritance->files) {
    const bool is_root = &file == &inheritance->files.front();
    const Layer layer = is_root ? Layer::kBaseFile : Layer::kUserFile;
    if (auto status = apply_file(file, layer, config.settings); !status.ok()) return status;
    if (is_root) config.base = config.settings;
  }
  auto edits = find_edits(source.shipped_base, config);
  if (!edits.ok()) return edits.status();
  config.edits = *std::move(edits);
  if (auto status = apply_environment(source, config.settings); !status.ok()) return status;
  if (auto status = apply_flags(source, config.settings); !status.ok()) return status;
  if (auto status = apply_overrides(source, config.settings); !status.ok()) return status;
  config.defaults = config.base;
  if (auto status = apply_model(source.shipped_base, config); !status.ok()) return status;
  choose_dataset_type(config.settings);
  warn_of_edited_path(config);
  for (std::string& warning : accept_spellings(config.settings))
    config.warnings.push_back(std::move(warning));
  if (auto status = check_names(config.settings); !status.ok()) return status;
  if (auto status = check_restrictions(config.settings); !status.ok()) return status;
  if (source.is_for_plan) take_planned_machines(config);
  for (std::string& warning : warnings_for(config.settings, config.base, config.edits)) {
    config.warnings.push_back(std::move(warning));
  }
  return config;
}

}  // namespace muster::jobspec
