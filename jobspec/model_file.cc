#include "jobspec/model_file.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/absl_view.h"
#include "common/nearest.h"
#include "jobspec/yaml_file.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

// More presets than anybody keeps in one folder.
constexpr size_t kModelsMax = 1000;

std::vector<std::string> models_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".yml" && names.size() < kModelsMax) {
      names.push_back(it->path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status unknown_model(std::string_view name, const fs::path& folder) {
  const std::vector<std::string> known = models_in(folder);
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string_view nearest = nearest_name(name, views);
  return absl::NotFoundError(absl::StrCat(
      "model_name=", show(std::string(name)), ": there is no such model in ", folder.string(),
      nearest.empty() ? absl::StrCat("; there are: ", absl::StrJoin(known, ", "))
                      : absl::StrCat("; did you mean ", av(nearest), "?")));
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.size() <= 255;
}

// What a model's name fixes. Everything else in its file (max_target_length, …) is a default for a run.
bool is_architecture(std::string_view key) {
  static constexpr std::string_view kNames[] = {
      "head_dim",      "vocab_size",           "mlp_activations", "normalization_layer_epsilon",
      "decoder_block", "logits_via_embedding", "attention_type",  "attn_logits_soft_cap",
      "num_experts",   "final_logits_soft_cap"};
  return ((key.starts_with("base_") && key != "base_output_directory") ||
          key.starts_with("rope_")) ||
         std::find(std::begin(kNames), std::end(kNames), key) != std::end(kNames);
}

absl::Status apply_setting(std::string_view model_name, const std::string& key, Setting from_model,
                           bool override_model_config, Settings& settings) {
  const auto found = settings.find(key);
  if (found == settings.end() || found->second.layer == Layer::kBaseFile ||
      found->second.value == from_model.value) {
    settings.insert_or_assign(key, std::move(from_model));
    return absl::OkStatus();
  }
  if (override_model_config || !is_architecture(key)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(key, "=", show(found->second.value), " (", found->second.origin,
                   ") differs from model ", av(model_name), ", which has ", show(from_model.value),
                   "; add override_model_config=true to train another model than the name says"));
}

}  // namespace

absl::Status apply_model_file(const std::string& config_folder, std::string_view model_name,
                              bool override_model_config, Settings& settings) {
  const fs::path folder = fs::path(config_folder) / "models";
  if (!is_plain_name(model_name)) return unknown_model(model_name, folder);
  const fs::path path = folder / absl::StrCat(av(model_name), ".yml");
  std::error_code error;
  if (!fs::exists(path, error)) return unknown_model(model_name, folder);
  const auto entries = read_yaml_file(path.string());
  if (!entries.ok()) return entries.status();
  Settings model;
  for (const YamlEntry& entry : *entries) {
    absl::Status status = set_from_entry(model, path.string(), entry, Layer::kModelFile);
    if (!status.ok()) return status;
  }
  for (auto& [key, setting] : model) {
    absl::Status status =
        apply_setting(model_name, key, std::move(setting), override_model_config, settings);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace muster::jobspec
