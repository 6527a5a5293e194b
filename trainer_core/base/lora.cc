#include "trainer_core/base/lora.h"

#include <algorithm>
#include <cmath>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "trainer_core/base/model_config.h"

namespace muster::trainer {
namespace {

std::string all_targets() {
  return absl::StrJoin(kLoraTargetNames, ",",
                       [](std::string* out, std::string_view name) { out->append(name); });
}

bool is_of_mlp(LoraTarget target) { return target >= LoraTarget::kGate; }

bool has_dense_mlp(const ModelConfig& model) {
  for (int32_t layer = 0; layer < model.num_layers; ++layer)
    if (!model.experts.in_layer(layer)) return true;
  return false;
}

// Returns why the model has no such projection; "" if it has one.
std::string why_missing(const ModelConfig& model, LoraTarget target) {
  if (!is_of_mlp(target)) return "";
  if (!has_dense_mlp(model)) return "every layer has experts, which have no adapters";
  if (target == LoraTarget::kGate && !model.gated_mlp) return "the model's MLP has no gate";
  return "";
}

absl::Status check_target(const ModelConfig& model, const std::string& name) {
  const LoraConfig& lora = model.lora;
  const auto target = value_named<LoraTarget>(kLoraTargetNames, name);
  if (!target) {
    const std::string_view nearest = nearest_target(name);
    return absl::InvalidArgumentError(absl::StrCat(
        "lora_targets has ", name, ", which is no projection",
        nearest.empty() ? absl::StrCat(": give all, attention, mlp, or some of ", all_targets())
                        : absl::StrCat("; did you mean ", av(nearest), "?")));
  }
  if (const std::string why = why_missing(model, *target); !why.empty())
    return absl::InvalidArgumentError(absl::StrCat("lora_targets has ", name, ", but ", why));
  const auto [out, in] = projection_shape(model, *target);
  if (lora.rank <= std::min(out, in)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("lora_rank is ", lora.rank, ", but ", name,
                                                 " is a matrix of ", out, " x ", in,
                                                 ": it must be at most ", std::min(out, in)));
}

}  // namespace

bool LoraConfig::adapts(LoraTarget target) const {
  return enabled() &&
         std::ranges::find(targets, name_of(kLoraTargetNames, target)) != targets.end();
}

ProjectionShape projection_shape(const ModelConfig& model, LoraTarget target) {
  const int64_t d = model.emb_dim, query = int64_t{model.num_query_heads} * model.head_dim;
  switch (target) {
    case LoraTarget::kQuery:
      return {query, d};
    case LoraTarget::kKey:
    case LoraTarget::kValue:
      return {int64_t{model.num_kv_heads} * model.head_dim, d};
    case LoraTarget::kOut:
      return {d, query};
    case LoraTarget::kGate:
    case LoraTarget::kUp:
      return {model.mlp_dim, d};
    case LoraTarget::kDown:
      return {d, model.mlp_dim};
  }
  return {};
}

std::vector<std::string> lora_targets(const ModelConfig& model, LoraLayers layers) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kLoraTargetNames.size(); ++i) {
    const auto target = static_cast<LoraTarget>(i);
    if (layers != LoraLayers::kAll && is_of_mlp(target) != (layers == LoraLayers::kMlp)) continue;
    if (why_missing(model, target).empty()) names.emplace_back(kLoraTargetNames[i]);
  }
  return names;
}

absl::Status validate_lora(const ModelConfig& model) {
  const LoraConfig& lora = model.lora;
  if (lora.rank == 0) return absl::OkStatus();
  if (lora.rank < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("lora_rank is ", lora.rank, ", but must be at least 1"));
  if (!std::isfinite(lora.alpha) || lora.alpha <= 0)
    return absl::InvalidArgumentError(
        absl::StrCat("lora_alpha is ", lora.alpha, ", but must be above 0"));
  if (!std::isfinite(lora.dropout) || lora.dropout < 0 || lora.dropout >= 1)
    return absl::InvalidArgumentError(
        absl::StrCat("lora_dropout is ", lora.dropout, ", but must be in [0, 1) (0: none)"));
  if (model.position_type == PositionType::kRelative)
    return absl::InvalidArgumentError(
        absl::StrCat("lora_rank is ", lora.rank,
                     ", but position_type is relative, whose biases this version cannot freeze: "
                     "train all parameters (lora_rank=0)"));
  if (lora.targets.empty())
    return absl::InvalidArgumentError(
        "lora_targets names no projection of this model; give all, attention or mlp");
  for (const std::string& name : lora.targets)
    if (auto status = check_target(model, name); !status.ok()) return status;
  const auto position = [](const std::string& name) {
    return std::ranges::find(kLoraTargetNames, name) - kLoraTargetNames.begin();
  };
  if (std::ranges::adjacent_find(lora.targets, std::ranges::greater_equal(), position) !=
      lora.targets.end())
    return absl::InvalidArgumentError(
        absl::StrCat("lora_targets is ", absl::StrJoin(lora.targets, ","),
                     ", but must have each projection once, in the order ", all_targets()));
  return absl::OkStatus();
}

ModelConfig base_of(ModelConfig model) {
  model.lora = {};
  return model;
}

std::string_view nearest_target(std::string_view name) {
  return nearest_name(name, kLoraTargetNames);
}

}  // namespace muster::trainer
