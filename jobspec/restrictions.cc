#include "jobspec/restrictions.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/absl_view.h"

namespace muster::jobspec {
namespace {

bool is_allowed(const Key& key, const nlohmann::json& value) {
  for (const absl::string_view text : absl::StrSplit(av(key.allowed), '|')) {
    const auto allowed = parse_value(key.name, key.type, sv(text));
    if (allowed.ok() && *allowed == value) return true;
  }
  return false;
}

std::string describe_allowed(const Key& key) {
  const std::vector<std::string> values = absl::StrSplit(av(key.allowed), '|');
  return absl::StrJoin(values, " or ", [&](std::string* out, const std::string& value) {
    absl::StrAppend(out, av(key.name), "=", value.empty() ? "\"\"" : value);
  });
}

}  // namespace

absl::Status check_restrictions(const Settings& settings) {
  for (const Key& key : all_keys()) {
    if (key.support != Support::kRestricted) continue;
    const auto found = settings.find(key.name);
    if (found == settings.end() || is_allowed(key, found->second.value)) continue;
    return absl::InvalidArgumentError(absl::StrCat(av(key.name), "=", show(found->second.value),
                                                   shown_origin(found->second), ": ", av(key.note),
                                                   "; set ", describe_allowed(key)));
  }
  return absl::OkStatus();
}

std::vector<std::string> warnings_for(const Settings& settings, const Settings& base) {
  std::vector<std::string> warnings;
  for (const Key& key : all_keys()) {
    if (key.support != Support::kNoEffect) continue;
    const auto found = settings.find(key.name);
    if (found == settings.end() || found->second.layer == Layer::kBaseFile ||
        found->second.layer == Layer::kModelFile) {
      continue;
    }
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
