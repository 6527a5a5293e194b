#include "trainer_core/checkpoint/foreign/peft_folder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/strip.h>

#include "common/files/file_write.h"
#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/checkpoint/foreign/rotary_rows.h"
#include "trainer_core/checkpoint/safetensors.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPeftConfigBytesMax = 1 << 20;
constexpr absl::string_view kPeftPrefix = "base_model.model.";

absl::StatusOr<nlohmann::json> read_peft_config(const std::string& folder) {
  auto config = read_json_file(absl::StrCat(folder, "/", kPeftConfigFile), kPeftConfigBytesMax);
  if (config.ok() && !config->is_object())
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/", kPeftConfigFile, " is not an object"));
  return config;
}

// Returns whether a field is missing, or null, false, empty, or `usual`.
bool is_unset(const nlohmann::json& config, const char* field, const nlohmann::json& usual) {
  const auto found = config.find(field);
  return found == config.end() || found->is_null() || *found == false || *found == usual ||
         (found->is_structured() && found->empty());
}

// A field that must have its usual value, and what it changes.
struct UsualField {
  const char* name;
  nlohmann::json usual;
  const char* what;
};

// Refuses initializations that change the base: PEFT subtracts the initial B A from the weights.
absl::Status check_initialization(const std::string& folder, const nlohmann::json& config) {
  constexpr std::string_view kUnchanged[] = {"gaussian", "orthogonal", "eva"};
  const auto found = config.find("init_lora_weights");
  if (found == config.end() || found->is_null() || found->is_boolean()) return absl::OkStatus();
  if (found->is_string() &&
      std::ranges::find(kUnchanged, found->get<std::string>()) != std::end(kUnchanged))
    return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      folder, "/", kPeftConfigFile, ": init_lora_weights is ", show_json(*found),
      ", whose adapters may be of a changed base; true, false, gaussian, orthogonal and eva are "
      "supported; save the adapter with PEFT's path_initial_model_for_weight_conversion, or merge "
      "it with PEFT (merge_and_unload)"));
}

absl::Status check_usual_fields(const std::string& folder, const nlohmann::json& config) {
  const UsualField fields[] = {
      {"peft_type", "LORA", "adapters of another kind"},
      {"bias", "none", "trained biases"},
      {"lora_bias", false, "biases of the matrices B"},
      {"use_dora", false, "magnitudes beside the adapters (DoRA)"},
      {"fan_in_fan_out", false, "transposed weights"},
      {"rank_pattern", nlohmann::json::object(), "ranks that differ between layers"},
      {"alpha_pattern", nlohmann::json::object(), "scales that differ between layers"},
      {"modules_to_save", nullptr, "trained copies of modules"},
      {"trainable_token_indices", nullptr, "trained tokens"},
      {"target_parameters", nullptr, "adapters of other parameters"},
      {"layers_to_transform", nullptr, "layers without adapters"},
      {"layer_replication", nullptr, "repeated layers"},
      {"alora_invocation_tokens", nullptr, "adapters from a token on (aLoRA)"},
      {"use_qalora", false, "pooled inputs of the adapters (QALoRA)"},
      {"use_bdlora", nullptr, "block-diagonal matrices (BD-LoRA)"},
      {"megatron_config", nullptr, "layers of Megatron"},
      {"arrow_config", nullptr, "several adapters with a router (Arrow)"}};
  for (const UsualField& field : fields) {
    if (is_unset(config, field.name, field.usual)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        folder, "/", kPeftConfigFile, ": ", field.name, " is ", show_json(config.at(field.name)),
        ": ", field.what, " are not supported; merge the adapter with PEFT (merge_and_unload)"));
  }
  return check_initialization(folder, config);
}

// Returns the name of a projection within a tensor's name, such as q_proj; "" if there is none.
std::string projection_in(absl::string_view tensor) {
  const bool is_matrix = absl::ConsumeSuffix(&tensor, ".lora_A.weight") ||
                         absl::ConsumeSuffix(&tensor, ".lora_B.weight");
  return is_matrix ? std::string(tensor.substr(tensor.rfind('.') + 1)) : "";
}

// Returns the projections that the tensors of a file adapt, in the order of kLoraTargetNames.
absl::StatusOr<std::vector<std::string>> targets_in(const std::string& path,
                                                    const SafetensorsFile& file) {
  std::set<std::string> found;
  for (const auto& [name, tensor] : file.tensors()) {
    const std::string projection = projection_in(name);
    if (value_named<LoraTarget>(kLoraTargetNames, projection)) {
      found.insert(projection);
      continue;
    }
    const std::string_view nearest = nearest_target(projection);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": tensor ", name, " is of no projection that can have an adapter",
                     nearest.empty() ? "" : absl::StrCat("; the nearest is ", av(nearest))));
  }
  std::vector<std::string> targets;
  for (const std::string_view name : kLoraTargetNames)
    if (found.contains(std::string(name))) targets.emplace_back(name);
  return targets;
}

bool is_rotated(absl::string_view name) {
  return absl::StrContains(name, ".q_proj.lora_B") || absl::StrContains(name, ".k_proj.lora_B");
}

absl::Status read_tensors(const SafetensorsFile& file, const std::string& path,
                          Adapters& adapters) {
  adapters.table = part_of(model_params(adapters.model), ParamPart::kTrained);
  adapters.values.resize(static_cast<size_t>(parameter_count(adapters.table)));
  std::set<std::string> known;
  for (const ParamSpec& spec : adapters.table) {
    const std::string name = absl::StrCat(kPeftPrefix, spec.name);
    known.insert(name);
    const auto found = file.tensors().find(name);
    if (found == file.tensors().end())
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": there is no tensor ", name, ", which adapters of this base need"));
    if (found->second.shape != spec.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, " has adapters of another base: tensor ", name, " has the shape ",
          show_shape(found->second.shape), ", and this base requires ", show_shape(spec.shape)));
    }
    if (found->second.stored == StoredType::kOther)
      return absl::InvalidArgumentError(absl::StrCat(path, ": tensor ", name, " is stored as ",
                                                     found->second.dtype,
                                                     "; F32, BF16 or F16 is required"));
    const auto values =
        std::span(adapters.values)
            .subspan(static_cast<size_t>(spec.offset), static_cast<size_t>(spec.elements()));
    if (auto status = file.read(found->second, values); !status.ok()) return status;
    if (is_rotated(spec.name) && adapters.model.position_type == PositionType::kRopeInterleaved)
      join_rotary_pairs(values, adapters.model.head_dim, spec.shape[1]);
  }
  for (const auto& [name, tensor] : file.tensors()) {
    if (!known.contains(name))
      return absl::InvalidArgumentError(absl::StrCat(path, " has adapters of another base: it has ",
                                                     name, ", and this base has no such layer"));
  }
  return absl::OkStatus();
}

}  // namespace

bool is_peft_folder(const std::string& path) {
  std::error_code error;
  return fs::exists(absl::StrCat(path, "/", kPeftConfigFile), error);
}

absl::StatusOr<std::string> base_of_peft_folder(const std::string& folder) {
  const auto config = read_peft_config(folder);
  if (!config.ok()) return config.status();
  const auto base = config->find("base_model_name_or_path");
  if (base == config->end() || !base->is_string() || base->get<std::string>().empty())
    return absl::NotFoundError(
        absl::StrCat(folder, "/", kPeftConfigFile,
                     " has no base_model_name_or_path: name the folder of the base with --base"));
  const auto path = base->get<std::string>();
  std::error_code error;
  const fs::path beside = fs::path(folder) / path;
  return fs::is_directory(beside, error) ? beside.lexically_normal().string() : path;
}

absl::StatusOr<Adapters> read_peft_folder(const std::string& folder, const ModelConfig& base) {
  const auto config = read_peft_config(folder);
  if (!config.ok()) return config.status();
  if (auto status = check_usual_fields(folder, *config); !status.ok()) return status;
  Adapters adapters{.folder = folder,
                    .base = config->value("base_model_name_or_path", nlohmann::json()).is_string()
                                ? config->at("base_model_name_or_path").get<std::string>()
                                : "",
                    .base_hash = {},
                    .model = base_of(base),
                    .table = {},
                    .values = {}};
  LoraConfig& lora = adapters.model.lora;
  try {
    lora.rank = whole_number<int32_t>(config->at("r"));
    lora.alpha = config->at("lora_alpha").get<double>();
    lora.dropout = config->value("lora_dropout", 0.0);
    if (config->value("use_rslora", false)) lora.alpha *= std::sqrt(double{1} * lora.rank);
  } catch (const nlohmann::json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, "/", kPeftConfigFile, ": r, lora_alpha or lora_dropout: ", error.what()));
  } catch (const std::out_of_range& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/", kPeftConfigFile, ": r is ", error.what()));
  }
  const std::string path = absl::StrCat(folder, "/", kPeftWeightsFile);
  const auto file = SafetensorsFile::open(path);
  if (!file.ok()) return file.status();
  auto targets = targets_in(path, **file);
  if (!targets.ok()) return targets.status();
  lora.targets = *std::move(targets);
  if (auto status = validate_lora(adapters.model); !status.ok())
    return absl::InvalidArgumentError(absl::StrCat(folder, ": ", status.message()));
  if (lora.rank < 1)
    return absl::InvalidArgumentError(absl::StrCat(folder, "/", kPeftConfigFile, ": r is ",
                                                   lora.rank, ", but must be at least 1"));
  if (auto status = read_tensors(**file, path, adapters); !status.ok()) return status;
  return adapters;
}

absl::StatusOr<uint64_t> write_peft_folder(const Adapters& adapters, const std::string& base,
                                           const std::string& folder) {
  const ModelConfig& model = adapters.model;
  std::vector<float> values = adapters.values;
  std::vector<TensorToWrite> tensors;
  for (const ParamSpec& spec : adapters.table) {
    float* const data = values.data() + spec.offset;
    if (is_rotated(spec.name) && model.position_type == PositionType::kRopeInterleaved)
      split_rotary_pairs({data, static_cast<size_t>(spec.elements())}, model.head_dim,
                         spec.shape[1]);
    tensors.push_back({absl::StrCat(kPeftPrefix, spec.name), spec.shape, data});
  }
  const auto written = write_safetensors(absl::StrCat(folder, "/", kPeftWeightsFile), tensors);
  if (!written.ok()) return written.status();
  const nlohmann::ordered_json config = {{"peft_type", "LORA"},
                                         {"task_type", "CAUSAL_LM"},
                                         {"base_model_name_or_path", base},
                                         {"r", model.lora.rank},
                                         {"lora_alpha", model.lora.alpha},
                                         {"lora_dropout", model.lora.dropout},
                                         {"target_modules", model.lora.targets},
                                         {"bias", "none"},
                                         {"fan_in_fan_out", false},
                                         {"inference_mode", true}};
  if (auto status =
          write_file_atomically(absl::StrCat(folder, "/", kPeftConfigFile), config.dump(2) + "\n",
                                {.durability = Durability::kPowerLoss});
      !status.ok())
    return status;
  return written->digest.bytes;
}

}  // namespace muster::trainer
