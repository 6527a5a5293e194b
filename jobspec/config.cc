#include "jobspec/config.h"

#include <filesystem>
#include <system_error>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "jobspec/inheritance.h"
#include "jobspec/model_file.h"
#include "jobspec/restrictions.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

// MaxText's scripts name its own base.yml, which this source tree does not contain.
bool is_maxtexts_base(const std::string& path) {
  return path == "base.yml" ||
         absl::EndsWith(absl::AsciiStrToLower(path), "maxtext/configs/base.yml");
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
    if (auto status = check_not_in_environment(split->first, settings); !status.ok()) return status;
    absl::Status status =
        set_from_text(settings, split->first, split->second, kCommandLine, Layer::kCommandLine);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status apply_model(Config& config) {
  const Setting* model = find_setting(config.settings, "model_name");
  if (model == nullptr || model->value == "default" || model->value == "") return absl::OkStatus();
  const Setting* override = find_setting(config.settings, "override_model_config");
  const std::string folder = fs::path(config.root).parent_path().string();
  auto warnings =
      apply_model_file({.config_folder = folder.empty() ? "." : folder,
                        .name = model->value.get<std::string>(),
                        .override_model_config = override != nullptr && override->value == true},
                       config.settings);
  if (!warnings.ok()) return warnings.status();
  for (std::string& warning : *warnings) config.warnings.push_back(std::move(warning));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Config> load_config(const ConfigSource& source) {
  if (source.path.empty()) {
    return absl::InvalidArgumentError(
        "the path of the config is empty: give configs/base.yml, or a file that inherits from it");
  }
  Config config;
  std::string path = source.path;
  std::error_code error;
  if (!source.shipped_base.empty() && is_maxtexts_base(path) && !fs::exists(path, error)) {
    config.warnings.push_back(taking_shipped_base(path, source.shipped_base));
    path = source.shipped_base;
  }
  auto inheritance = read_with_parents(path, source.shipped_base);
  if (!inheritance.ok()) return inheritance.status();
  for (std::string& warning : inheritance->warnings) config.warnings.push_back(std::move(warning));
  config.root = inheritance->files.front().path;
  for (const ConfigFile& file : inheritance->files) {
    const bool is_root = &file == &inheritance->files.front();
    const Layer layer = is_root ? Layer::kBaseFile : Layer::kUserFile;
    if (auto status = apply_file(file, layer, config.settings); !status.ok()) return status;
    if (is_root) config.base = config.settings;
  }
  if (auto status = apply_environment(source, config.settings); !status.ok()) return status;
  if (auto status = apply_flags(source, config.settings); !status.ok()) return status;
  if (auto status = apply_overrides(source, config.settings); !status.ok()) return status;
  if (auto status = apply_model(config); !status.ok()) return status;
  if (auto status = check_restrictions(config.settings); !status.ok()) return status;
  for (std::string& warning : warnings_for(config.settings, config.base)) {
    config.warnings.push_back(std::move(warning));
  }
  return config;
}

}  // namespace muster::jobspec
