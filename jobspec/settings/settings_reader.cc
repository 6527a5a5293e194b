#include "jobspec/settings/settings_reader.h"

#include <limits>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "jobspec/settings/meant_value.h"

namespace muster::jobspec {
namespace {

// Returns null if the key is not set.
const nlohmann::json* value_of(const Settings& settings, std::string_view key) {
  const Setting* setting = find_setting(settings, key);
  return setting == nullptr ? nullptr : &setting->value;
}

}  // namespace

void SettingsReader::read(std::string_view key, std::string& out) {
  if (const auto* value = value_of(settings_, key); value != nullptr && value->is_string()) {
    out = value->get<std::string>();
  }
}

void SettingsReader::read(std::string_view key, bool& out) {
  if (const auto* value = value_of(settings_, key); value != nullptr && value->is_boolean()) {
    out = value->get<bool>();
  }
}

void SettingsReader::read(std::string_view key, double& out) {
  if (const auto* value = value_of(settings_, key); value != nullptr && value->is_number()) {
    out = value->get<double>();
  }
}

void SettingsReader::read(std::string_view key, int64_t& out) {
  if (const auto* value = value_of(settings_, key);
      value != nullptr && value->is_number_integer()) {
    out = value->get<int64_t>();
  }
}

void SettingsReader::read(std::string_view key, int32_t& out) {
  int64_t wide = out;
  read(key, wide);
  constexpr int64_t kMin = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  require(wide >= kMin && wide <= kMax, key, "too large");
  if (wide >= kMin && wide <= kMax) out = static_cast<int32_t>(wide);
}

void SettingsReader::read(std::string_view key, uint64_t& out) {
  int64_t value = static_cast<int64_t>(out);
  read(key, value);
  require(value >= 0, key, "must be at least 0");
  if (value >= 0) out = static_cast<uint64_t>(value);
}

void SettingsReader::read(std::string_view key, std::vector<std::string>& out) {
  const auto* value = value_of(settings_, key);
  if (value == nullptr || !value->is_array()) return;
  out.clear();
  for (const auto& item : *value) {
    if (item.is_string()) out.push_back(item.get<std::string>());
  }
}

void SettingsReader::refuse_choice(std::string_view key, std::span<const std::string_view> names) {
  std::string choices;
  for (const std::string_view name : names) {
    const bool last = name == names.back() && names.size() > 1;
    absl::StrAppend(&choices, last ? " or " : choices.empty() ? "" : ", ", av(name));
  }
  std::string word;
  read(key, word);
  require(false, key, absl::StrCat("must be ", choices, suggestion(key, word, names)));
}

bool SettingsReader::is_set_explicitly(std::string_view key) const {
  const Setting* setting = find_setting(settings_, key);
  return setting != nullptr && setting->layer != Layer::kBaseFile;
}

bool SettingsReader::is_set_by_user(std::string_view key) const {
  return is_set_explicitly(key) && find_setting(settings_, key)->layer != Layer::kModelFile;
}

void SettingsReader::read_optional(std::string_view key, int64_t& out) {
  if (const auto* value = value_of(settings_, key); value != nullptr && !value->is_null())
    read(key, out);
}

void SettingsReader::require(bool holds, std::string_view key, std::string_view what) {
  if (holds || !status_.ok()) return;
  const Setting* setting = find_setting(settings_, key);
  const std::string origin_text =
      setting == nullptr ? "" : absl::StrCat("=", show(setting->value), shown_origin(*setting));
  status_ = absl::InvalidArgumentError(absl::StrCat(av(key), origin_text, ": ", av(what)));
}

}  // namespace muster::jobspec
