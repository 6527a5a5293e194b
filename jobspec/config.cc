#include "jobspec/config.h"

#include <filesystem>
#include <map>
#include <system_error>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/absl_view.h"
#include "jobspec/model_file.h"
#include "jobspec/restrictions.h"
#include "jobspec/yaml_file.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

// base ← site ← team ← job and some to spare; also ends a circle of files.
constexpr size_t kInheritanceMax = 8;

constexpr std::string_view kInheritKey = "base_config";

struct ConfigFile {
  std::string path;
  std::vector<YamlEntry> entries;
};

// base_config is looked up beside the file that names it, then as the shell would.
std::string inherited_path(const std::string& from, const std::string& named) {
  const fs::path beside = fs::path(from).parent_path() / named;
  std::error_code error;
  return fs::exists(beside, error) ? beside.string() : named;
}

// The chain of files from the root base.yml to `path`.
absl::StatusOr<std::vector<ConfigFile>> read_chain(const std::string& path) {
  std::vector<ConfigFile> chain;
  std::string next = path;
  while (!next.empty()) {
    if (chain.size() == kInheritanceMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": more than ", kInheritanceMax, " files inherit from each other, or in a circle"));
    }
    absl::StatusOr<std::vector<YamlEntry>> entries = read_yaml_file(next);
    if (!entries.ok()) return entries.status();
    std::string parent;
    for (const YamlEntry& entry : *entries) {
      if (entry.key == kInheritKey && entry.is_scalar) parent = entry.text;
    }
    chain.insert(chain.begin(), ConfigFile{next, *std::move(entries)});
    next = parent.empty() ? "" : inherited_path(next, parent);
  }
  return chain;
}

absl::Status apply_file(const ConfigFile& file, Layer layer, Settings& settings) {
  for (const YamlEntry& entry : file.entries) {
    if (entry.key == kInheritKey) continue;
    absl::Status status = set_from_entry(settings, file.path, entry, layer);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status apply_environment(const ConfigSource& source, Settings& settings) {
  for (const auto& [name, value] : source.environment) {
    absl::string_view key = name;
    if (!absl::ConsumePrefix(&key, "M_")) continue;
    const std::string origin = absl::StrCat("environment ", name);
    absl::Status status =
        set_from_text(settings, absl::AsciiStrToLower(key), value, origin, Layer::kEnvironment);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// MaxText's rule: which of the two wins is nobody's guess.
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
    if (auto status = check_not_in_environment(split->first, settings); !status.ok()) return status;
    absl::Status status =
        set_from_text(settings, split->first, split->second, "command line", Layer::kCommandLine);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status apply_model(const std::string& config_folder, Config& config) {
  const Setting* model = find_setting(config.settings, "model_name");
  if (model == nullptr || model->value == "default" || model->value == "") return absl::OkStatus();
  const Setting* override = find_setting(config.settings, "override_model_config");
  auto warnings =
      apply_model_file({.config_folder = config_folder.empty() ? "." : config_folder,
                        .name = model->value.get<std::string>(),
                        .override_model_config = override != nullptr && override->value == true},
                       config.base, config.settings);
  if (!warnings.ok()) return warnings.status();
  config.warnings = *std::move(warnings);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::pair<std::string, std::string>> split_override(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(show(std::string(text)), ": expected key=value, for example steps=100"));
  }
  return std::pair(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

absl::StatusOr<Config> load_config(const ConfigSource& source) {
  const auto chain = read_chain(source.path);
  if (!chain.ok()) return chain.status();
  Config config;
  for (size_t i = 0; i < chain->size(); ++i) {
    const Layer layer = i == 0 ? Layer::kBaseFile : Layer::kUserFile;
    absl::Status status = apply_file((*chain)[i], layer, config.settings);
    if (!status.ok()) return status;
    if (i == 0) config.base = config.settings;
  }
  if (auto status = apply_environment(source, config.settings); !status.ok()) return status;
  if (auto status = apply_flags(source, config.settings); !status.ok()) return status;
  if (auto status = apply_overrides(source, config.settings); !status.ok()) return status;
  const std::string folder = fs::path(chain->front().path).parent_path().string();
  if (auto status = apply_model(folder, config); !status.ok()) return status;
  if (auto status = check_restrictions(config.settings); !status.ok()) return status;
  for (std::string& warning : warnings_for(config.settings, config.base)) {
    config.warnings.push_back(std::move(warning));
  }
  return config;
}

}  // namespace muster::jobspec
