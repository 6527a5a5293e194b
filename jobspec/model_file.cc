#include "jobspec/model_file.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "jobspec/files/inheritance.h"
#include "jobspec/preset_name.h"

namespace muster::jobspec {
namespace {

namespace fs = std::filesystem;

// More presets than any folder has.
constexpr size_t kModelsMax = 1000;
// Suggestions for a name that is not near to exactly one.
constexpr size_t kNearModels = 3;

constexpr std::string_view kLeftOutKey = "left_out";
constexpr std::string_view kFollowsKey = "follows";
// Scales the sizes that are fixed by the model's name.
constexpr std::string_view kScaleKey = "global_parameter_scale";

absl::Status unknown_model(std::string_view name, const fs::path& folder) {
  const std::vector<std::string> known = model_names(folder);
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string_view nearest = nearest_name(name, views);
  if (known.empty()) {
    return absl::NotFoundError(absl::StrCat("model_name=", show(std::string(name)),
                                            ": no models in ", folder.string(),
                                            " beside the config; a config that begins with "
                                            "base_config: base.yml uses the models of that file"));
  }
  // Several versions of a Fuji model are equally near.
  const std::string_view one = name.starts_with("fuji-") ? std::string_view() : nearest;
  std::string advice = absl::StrCat("did you mean ", av(one), "?");
  if (one.empty()) {
    const auto nearest_views = closest_names(name, views, kNearModels);
    const std::vector<std::string> near(nearest_views.begin(), nearest_views.end());
    advice = absl::StrCat("the nearest of ", known.size(), ": ", absl::StrJoin(near, ", "));
  }
  return absl::NotFoundError(absl::StrCat("model_name=", show(std::string(name)),
                                          ": no such model in ", folder.string(), "; ", advice));
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.size() <= 250;
}

// Keys that are fixed by a model's name. All others in its file (max_target_length, …) are defaults
// for a run.
bool is_architecture(std::string_view key) {
  static constexpr std::string_view kNames[] = {"head_dim",
                                                "vocab_size",
                                                "mlp_activations",
                                                "normalization_layer_epsilon",
                                                "decoder_block",
                                                "logits_via_embedding",
                                                "normalize_embedding_logits",
                                                "attention_type",
                                                "attention_bias",
                                                "sliding_window_size",
                                                "attn_logits_soft_cap",
                                                "final_logits_soft_cap",
                                                "position_type",
                                                "trainable_position_size",
                                                "query_scale",
                                                "relative_position_buckets",
                                                "relative_position_max_distance",
                                                "attention_extra_zero",
                                                "num_experts",
                                                "num_experts_per_tok",
                                                "interleave_moe_layer_step",
                                                "first_moe_layer",
                                                "expert_activations",
                                                "router_style"};
  return ((key.starts_with("base_") && key != "base_output_directory") ||
          key.starts_with("rope_")) ||
         std::find(std::begin(kNames), std::end(kNames), key) != std::end(kNames);
}

// A difference between a preset and its original.
struct LeftOut {
  std::string sentence;
  std::string unless;  // "key=value"; may be empty
};

// A model while its files are being read.
struct Model {
  Settings settings;
  std::vector<LeftOut> left_out;
  std::map<std::string, std::string> follows;  // key → "key" or "key / key"
};

// Reads a sentence, or {unless: "key=value", says: a sentence}, which does not apply with this
// value.
LeftOut left_out_of(const nlohmann::json& item) {
  if (item.is_string()) return {.sentence = item.get<std::string>(), .unless = ""};
  if (!item.is_object()) return {};
  const auto text = [&](const char* name) {
    const auto found = item.find(name);
    return found != item.end() && found->is_string() ? found->get<std::string>() : "";
  };
  return {.sentence = text("says"), .unless = text("unless")};
}

absl::Status apply_file(const ConfigFile& file, Model& model) {
  OncePerKey once;
  for (const YamlEntry& entry : file.entries) {
    if (entry.key == kLeftOutKey) {
      for (const nlohmann::json& item : entry.value) model.left_out.push_back(left_out_of(item));
      continue;
    }
    if (entry.key == kFollowsKey && entry.value.is_object()) {
      for (const auto& [key, source] : entry.value.items())
        model.follows[key] = source.is_string() ? source.get<std::string>() : "";
      continue;
    }
    if (auto status = once.add(entry.key, absl::StrCat(file.path, ":", entry.line)); !status.ok())
      return status;
    auto status = set_from_entry(model.settings, file.path, entry, Layer::kModelFile);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Model> read_model_file(const std::string& path) {
  const auto inheritance = read_with_parents(path, "");
  if (!inheritance.ok()) return inheritance.status();
  Model model;
  for (const ConfigFile& file : inheritance->files) {
    if (auto status = apply_file(file, model); !status.ok()) return status;
  }
  return model;
}

// Rejects a file with two contradictory widths of the model. Gemma's heads are intentionally wider
// than the model.
absl::Status check_widths(const ModelRequest& request, const Settings& model) {
  const auto integer = [&](const char* key) -> int64_t {
    const auto found = model.find(key);
    return found != model.end() && found->second.value.is_number_integer()
               ? found->second.value.get<int64_t>()
               : 0;
  };
  const int64_t width = integer("base_emb_dim");
  const int64_t heads = integer("base_num_query_heads"), head_dim = integer("head_dim");
  const auto block = model.find("decoder_block");
  const bool may_differ = request.override_model_config ||
                          (block != model.end() && block->second.value == "gemma") || width == 0 ||
                          heads == 0 || head_dim == 0;
  constexpr int64_t kSane = int64_t{1} << 31;  // larger sizes are rejected later, by name
  if (may_differ || heads > kSane || head_dim > kSane || heads * head_dim == width) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("model ", request.name, " contradicts itself: base_num_query_heads (", heads,
                   ") times head_dim (", head_dim, ") is ", heads * head_dim,
                   ", but base_emb_dim is ", width, " (", model.find("base_emb_dim")->second.origin,
                   "); correct the file, or add override_model_config=true if this is intended"));
}

absl::Status conflict(const ModelRequest& request, const std::string& key, const Setting& requested,
                      const nlohmann::json& models) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, "=", show(requested.value), " (", requested.origin, ") differs from model ",
                   request.name, ", which has ", show(models),
                   "; add override_model_config=true to change the named model"));
}

// Keys that the model's file does not set are free, as in MaxText.
absl::Status check_against_model(const ModelRequest& request, const Settings& model,
                                 const Settings& settings) {
  if (request.override_model_config) return absl::OkStatus();
  for (const auto& [key, setting] : settings) {
    if (!is_of_user(setting) || setting.layer == Layer::kFlag) continue;
    if (key == kScaleKey && setting.value != 1) return conflict(request, key, setting, 1);
    const Setting* fixed = is_architecture(key) ? find_setting(model, key) : nullptr;
    if (fixed == nullptr || fixed->value == setting.value) continue;
    return conflict(request, key, setting, fixed->value);
  }
  return absl::OkStatus();
}

// -single-host: a share of the file's batch, which is for many hosts.
void divide_batch(const ModelRequest& request, int64_t divisor, Settings& model) {
  const auto batch = model.find("global_batch_size");
  if (divisor == 1 || batch == model.end()) return;
  Setting& setting = batch->second;
  setting.origin = absl::StrCat("model ", request.name, ": a part in ", divisor, " of ",
                                show(setting.value), " (", setting.origin, ")");
  setting.value = setting.value.get<int64_t>() / divisor;
}

// The effect of AXLearn's FP8ConfigModifier(fp8_amax_history_length=128) on a Fuji model.
void set_fp8(const ModelRequest& request, Settings& model) {
  const std::string origin = absl::StrCat("model ", request.name, ": -fp8");
  model.insert_or_assign("quantization", Setting{"fp8", origin, Layer::kModelFile});
  model.insert_or_assign("fp8_amax_history_length", Setting{128, origin, Layer::kModelFile});
}

// Replaces the model's own value by one that a flag has changed, or by the quotient of two.
absl::Status follow(const std::string& key, const std::string& sources, Settings& settings) {
  const Setting* own = find_setting(settings, key);
  if (own != nullptr && is_of_user(*own)) return absl::OkStatus();
  const std::vector<std::string> names = absl::StrSplit(sources, " / ");
  std::vector<const Setting*> found;
  for (const std::string& name : names) {
    const Setting* source = find_setting(settings, name);
    if (find_key(key) == nullptr || names.size() > 2 || source == nullptr ||
        !source->value.is_number_integer()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "follows: ", key, ": ", show(sources), ": expected an integer key, or \"key / key\""));
    }
    found.push_back(source);
  }
  const auto flag = std::find_if(found.begin(), found.end(), [](const Setting* source) {
    return source->layer == Layer::kFlag;
  });
  if (flag == found.end()) return absl::OkStatus();
  const auto value = found.front()->value.get<int64_t>();
  const int64_t divisor = found.size() == 1 ? 1 : found.back()->value.get<int64_t>();
  if (divisor < 1 || value % divisor != 0) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is ", sources, " (", (*flag)->origin,
                                                   "), but ", divisor, " does not divide ", value,
                                                   "; give ", key, ", too"));
  }
  Setting followed{value / divisor, absl::StrCat((*flag)->origin, ": ", sources), Layer::kFlag};
  settings.insert_or_assign(key, std::move(followed));
  return absl::OkStatus();
}

// True if the settings contain `text`, "key=value".
bool holds(const std::string& text, const Settings& settings) {
  const auto split = split_override(text);
  if (!split.ok()) return false;
  const Key* key = find_key(split->first);
  const Setting* setting = find_setting(settings, split->first);
  if (key == nullptr || setting == nullptr) return false;
  const auto value = parse_value(key->name, key->type, split->second);
  return value.ok() && *value == setting->value;
}

}  // namespace

std::vector<std::string> model_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".yml" && names.size() < kModelsMax)
      names.push_back(it->path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::vector<std::string>> apply_model_file(const ModelRequest& request,
                                                          Settings& settings) {
  const fs::path folder = fs::path(request.config_folder) / "models";
  if (!is_plain_name(request.name)) return unknown_model(request.name, folder);
  const auto preset = parse_preset_name(request.name);
  if (!preset.ok()) return preset.status();
  const fs::path path = folder / absl::StrCat(preset->file, ".yml");
  std::error_code error;
  if (!fs::exists(path, error)) return unknown_model(request.name, folder);
  auto model = read_model_file(path.string());
  if (!model.ok()) return model.status();
  if (auto status = check_widths(request, model->settings); !status.ok()) return status;
  if (auto status = check_against_model(request, model->settings, settings); !status.ok())
    return status;
  divide_batch(request, preset->batch_divisor, model->settings);
  if (preset->fp8) set_fp8(request, model->settings);
  for (auto& [key, setting] : model->settings) {
    const auto found = settings.find(key);
    if (found == settings.end() || !is_of_user(found->second)) {
      settings.insert_or_assign(key, std::move(setting));
    }
  }
  for (const auto& [key, sources] : model->follows) {
    if (auto status = follow(key, sources, settings); !status.ok()) return status;
  }
  std::vector<std::string> warnings;
  for (const LeftOut& row : model->left_out) {
    if (row.sentence.empty() || holds(row.unless, settings)) continue;
    warnings.push_back(absl::StrCat("model ", request.name, ": ", row.sentence));
  }
  return warnings;
}

}  // namespace muster::jobspec
