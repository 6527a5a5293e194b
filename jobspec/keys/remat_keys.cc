#include "jobspec/keys/remat_keys.h"

#include <algorithm>
#include <array>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "jobspec/settings/meant_value.h"

namespace muster::jobspec {
namespace {

using trainer::CustomRemat;
using trainer::CustomRematKey;
using trainer::kCustomRematKeys;
using trainer::kPlacementNames;
using trainer::kRematPolicyNames;
using trainer::Placement;
using trainer::RematPolicy;

// MaxText's names of policies that have another name here.
struct PolicyAlias {
  std::string_view name;
  std::string_view policy;
  std::string_view note;  // empty: the same policy
};
constexpr std::string_view kNotKept =
    "quantized tensors are rounded again where they are needed: there is nothing more to save";
constexpr std::array<PolicyAlias, 3> kAliases = {{
    {"minimal_flash", "minimal_with_context", ""},
    {"minimal_with_quantization", "minimal", kNotKept},
    {"minimal_with_context_and_quantization", "minimal_with_context", kNotKept},
}};

absl::Status unknown_policy(const std::string& name) {
  std::vector<std::string_view> known(kRematPolicyNames.begin(), kRematPolicyNames.end());
  for (const PolicyAlias& alias : kAliases) known.push_back(alias.name);
  const std::string_view nearest = meant_value(name, known);
  return absl::InvalidArgumentError(
      absl::StrCat("remat_policy=", show(name), ": no such policy; did you mean ",
                   nearest.empty() ? "none, minimal or full" : av(nearest), "?"));
}

absl::Status read_policy(SettingsReader& reader, RematPolicy& policy,
                         std::vector<std::string>& warnings) {
  std::string name(name_of(kRematPolicyNames, policy));
  reader.read("remat_policy", name);
  std::string_view canonical = name;
  for (const PolicyAlias& alias : kAliases) {
    if (name != alias.name) continue;
    canonical = alias.policy;
    if (alias.note.empty()) continue;
    warnings.push_back(
        absl::StrCat("remat_policy=", name, " runs as ", av(alias.policy), ": ", av(alias.note)));
  }
  const auto named = trainer::value_named<RematPolicy>(kRematPolicyNames, canonical);
  if (!named.has_value()) return unknown_policy(name);
  policy = *named;
  return absl::OkStatus();
}

// Returns the keys that the user has set to another value than the default, as key=value.
std::string user_settings(const SettingsReader& reader, const CustomRemat& custom) {
  const CustomRemat usual;
  std::string text;
  for (const CustomRematKey& key : kCustomRematKeys) {
    if (!reader.is_set_by_user(key.name) || custom.*key.field == usual.*key.field) continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", av(key.name), "=",
                    av(name_of(kPlacementNames, custom.*key.field)));
  }
  return text;
}

bool offloads(const trainer::LayerPlacements& placements) {
  for (const Placement placement : {placements.input, placements.qkv, placements.context,
                                    placements.middle, placements.gate_up}) {
    if (placement == Placement::kOffload) return true;
  }
  return false;
}

}  // namespace

bool is_remat_key(std::string_view key) {
  return key == "remat_policy" ||
         std::ranges::find(kCustomRematKeys, key, &CustomRematKey::name) != kCustomRematKeys.end();
}

absl::Status read_remat(SettingsReader& reader, trainer::TrainConfig& train,
                        std::vector<std::string>& warnings) {
  if (auto status = read_policy(reader, train.remat_policy, warnings); !status.ok()) return status;
  CustomRemat custom;
  for (const CustomRematKey& key : kCustomRematKeys) {
    reader.read_choice(key.name, kPlacementNames, custom.*key.field);
  }
  if (!reader.status().ok()) return reader.status();
  if (train.remat_policy == RematPolicy::kCustom) {
    if (auto status = trainer::validate(custom); !status.ok()) return status;
    train.custom_remat = custom;
  } else if (const std::string unused = user_settings(reader, custom); !unused.empty()) {
    warnings.push_back(absl::StrCat(unused, " has no effect: remat_policy is ",
                                    av(name_of(kRematPolicyNames, train.remat_policy)),
                                    ", and only custom reads it"));
  }
  if (train.hardware != trainer::Hardware::kGpu && offloads(train.layer_placements())) {
    warnings.push_back(
        absl::StrCat("remat_policy=", av(name_of(kRematPolicyNames, train.remat_policy)),
                     " saves no memory on CPU, whose memory is the host's: what is offloaded is "
                     "copied within it"));
  }
  return absl::OkStatus();
}

}  // namespace muster::jobspec
