#include "jobspec/settings/restrictions.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "jobspec/settings/meant_value.h"

namespace muster::jobspec {
namespace {

bool is_allowed(const Key& key, const nlohmann::json& value) {
  for (const absl::string_view text : absl::StrSplit(av(key.allowed), '|')) {
    const auto allowed = parse_value(key.name, key.type, sv(text));
    if (allowed.ok() && *allowed == value) return true;
  }
  return false;
}

std::string describe_allowed(const Key& key, const nlohmann::json& value) {
  const std::vector<std::string> allowed = absl::StrSplit(av(key.allowed), '|');
  const std::vector<std::string_view> views(allowed.begin(), allowed.end());
  const std::string word = value.is_string() ? value.get<std::string>() : "";
  const std::string all =
      absl::StrJoin(allowed, " or ", [&](std::string* out, const std::string& one) {
        absl::StrAppend(out, av(key.name), "=", one.empty() ? "\"\"" : one);
      });
  return all + suggestion(key.name, word, views);
}

// MaxText's values of `attention`, of all versions.
constexpr std::array<std::string_view, 8> kAttentions = {
    "autoselected",    "dot_product", "flash",    "cudnn_flash_te",
    "cudnn_flash_jax", "paged",       "vllm_rpa", "mha"};

}  // namespace

std::vector<std::string> accept_spellings(Settings& settings) {
  const auto hardware = settings.find("hardware");
  if (hardware == settings.end()) return {};
  Setting& setting = hardware->second;
  if (setting.value == "gpu_multiprocess") setting.written = std::exchange(setting.value, "gpu");
  if (setting.value != "tpu") return {};
  setting.written = std::exchange(setting.value, "auto");
  return {absl::StrCat("hardware=tpu", shown_origin(setting),
                       ": there are no TPUs here; as with hardware=auto, ranks use the GPUs of "
                       "their node, or the CPU if it has none")};
}

absl::Status check_names(const Settings& settings) {
  const Setting* attention = find_setting(settings, "attention");
  if (attention == nullptr || !attention->value.is_string()) return absl::OkStatus();
  const auto name = attention->value.get<std::string>();
  if (std::ranges::find(kAttentions, name) != kAttentions.end()) return absl::OkStatus();
  const std::string_view nearest = meant_value(name, kAttentions);
  return absl::InvalidArgumentError(absl::StrCat(
      "attention=", show(name), shown_origin(*attention), ": MaxText has no such attention; ",
      nearest.empty() ? "attention=autoselected is its default"
                      : absl::StrCat("did you mean attention=", av(nearest), "?")));
}

absl::Status check_restrictions(const Settings& settings) {
  for (const Key& key : all_keys()) {
    if (key.support != Support::kRestricted) continue;
    const auto found = settings.find(key.name);
    if (found == settings.end() || is_allowed(key, found->second.value)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(av(key.name), "=", show(found->second.value), shown_origin(found->second),
                     ": ", av(key.note), "; set ", describe_allowed(key, found->second.value)));
  }
  return absl::OkStatus();
}

std::vector<std::string> warnings_for(const Settings& settings, const Settings& base,
                                      const KeySet& edits) {
  std::vector<std::string> warnings;
  for (const Key& key : all_keys()) {
    if (key.support != Support::kNoEffect) continue;
    const auto found = settings.find(key.name);
    if (found == settings.end() || found->second.layer == Layer::kModelFile) continue;
    if (found->second.layer == Layer::kBaseFile && !edits.contains(key.name)) continue;
    // A user's file may be a copy of the whole base.yml.
    const auto usual = base.find(key.name);
    if (found->second.layer == Layer::kUserFile && usual != base.end() &&
        usual->second.value == found->second.value) {
      continue;
    }
    warnings.push_back(absl::StrCat(av(key.name), "=", show(found->second.value),
                                    shown_origin(found->second), " has no effect: ", av(key.note)));
  }
  return warnings;
}

}  // namespace muster::jobspec
