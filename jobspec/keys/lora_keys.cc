#include "jobspec/keys/lora_keys.h"

#include <algorithm>
#include <set>
#include <string_view>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"
#include "trainer_core/base/lora.h"

namespace muster::jobspec {
namespace {

using trainer::kLoraTargetNames;
using trainer::LoraLayers;

constexpr std::string_view kTargets = "lora_targets";
// Pax's values of LORA_TARGET_LAYERS, in the order of LoraLayers.
constexpr trainer::ValueNames<3> kLayerNames = {"all", "attention", "mlp"};

absl::Status unknown_target(std::string_view word) {
  std::vector<std::string_view> known(kLayerNames.begin(), kLayerNames.end());
  known.insert(known.end(), kLoraTargetNames.begin(), kLoraTargetNames.end());
  const std::string_view nearest = nearest_name(word, known);
  const std::string all = absl::StrJoin(
      known, ", ", [](std::string* out, std::string_view name) { out->append(name); });
  return absl::InvalidArgumentError(
      absl::StrCat(av(kTargets), "=", show(std::string(word)), ": there is no such projection",
                   nearest.empty() ? absl::StrCat("; give some of ", all)
                                   : absl::StrCat("; did you mean ", av(nearest), "?")));
}

absl::Status read_targets(SettingsReader& reader, trainer::ModelConfig& model) {
  std::string text = "all";
  reader.read(kTargets, text);
  std::set<std::string, std::less<>> chosen;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    word = absl::StripAsciiWhitespace(word);
    const std::string name(word);
    if (const auto layers = trainer::value_named<LoraLayers>(kLayerNames, name)) {
      for (std::string& target : lora_targets(model, *layers)) chosen.insert(std::move(target));
    } else if (std::ranges::find(kLoraTargetNames, name) != kLoraTargetNames.end()) {
      chosen.insert(name);
    } else {
      return unknown_target(name);
    }
  }
  for (const std::string_view name : kLoraTargetNames)
    if (chosen.contains(name)) model.lora.targets.emplace_back(name);
  return absl::OkStatus();
}

}  // namespace

absl::Status read_lora(SettingsReader& reader, trainer::ModelConfig& model,
                       std::vector<std::string>& warnings) {
  bool enabled = false;
  reader.read("enable_lora", enabled);
  if (!enabled) {
    for (const std::string_view key :
         {std::string_view("lora_rank"), std::string_view("lora_alpha"),
          std::string_view("lora_dropout"), kTargets, std::string_view("lora_weight_qtype"),
          std::string_view("lora_restore_path")}) {
      if (reader.is_set_by_user(key))
        warnings.push_back(absl::StrCat(av(key), " has no effect: enable_lora is False"));
    }
    return absl::OkStatus();
  }
  // Pax' rank. The factor of its adapters is 1, which is that of alpha = rank.
  constexpr int32_t kPaxRank = 32;
  model.lora.rank = kPaxRank;
  reader.read("lora_rank", model.lora.rank);
  reader.require(model.lora.rank >= 1, "lora_rank", "must be at least 1");
  double alpha = -1;
  reader.read("lora_alpha", alpha);
  model.lora.alpha = alpha == -1 ? model.lora.rank : alpha;
  reader.read("lora_dropout", model.lora.dropout);
  reader.read_choice("lora_weight_qtype", trainer::kWeightTypeNames, model.lora.weight_type);
  return read_targets(reader, model);
}

}  // namespace muster::jobspec
