#include "jobspec/settings/settings.h"

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"

namespace muster::jobspec {
namespace {

std::string_view file_prefix(const std::string& origin, Layer layer) {
  return layer == Layer::kCommandLine ? std::string_view() : std::string_view(origin);
}

constexpr std::string_view kLoraBlock = "lora";

// Returns the value in the form of key=value.
std::string text_of(const nlohmann::json& value) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string shown_origin(const Setting& setting) {
  return setting.origin == kCommandLine ? "" : absl::StrCat(" (", setting.origin, ")");
}

const Setting* find_setting(const Settings& settings, std::string_view key) {
  const auto found = settings.find(key);
  return found == settings.end() ? nullptr : &found->second;
}

absl::StatusOr<std::vector<const Key*>> keys_named(std::string_view name, std::string_view where) {
  std::vector<const Key*> keys;
  if (const Key* key = find_key(name)) {
    keys.push_back(key);
  } else if (const Alias* alias = find_alias(name)) {
    keys.push_back(find_key(alias->target));
    if (!alias->second_target.empty()) keys.push_back(find_key(alias->second_target));
  }
  if (!keys.empty()) return keys;
  const std::string_view nearest = nearest_key(name);
  return absl::InvalidArgumentError(
      absl::StrCat(av(where), where.empty() ? "" : ": ", "unknown key ", show(std::string(name)),
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", av(nearest), "?")));
}

absl::Status OncePerKey::add(std::string_view name, const std::string& origin) {
  const auto keys = keys_named(name, "");
  if (!keys.ok()) return absl::OkStatus();
  for (const Key* key : *keys) {
    const auto [found, is_new] = seen_.try_emplace(key->name, Seen{std::string(name), origin});
    if (is_new) continue;
    return absl::InvalidArgumentError(absl::StrCat(origin, ": ", av(name), " and ",
                                                   found->second.name, " (", found->second.origin,
                                                   ") are the same key; set one of them"));
  }
  return absl::OkStatus();
}

absl::Status set_from_text(Settings& settings, std::string_view name, std::string_view text,
                           const std::string& origin, Layer layer) {
  const std::string_view where = file_prefix(origin, layer);
  const auto keys = keys_named(name, where);
  if (!keys.ok()) return keys.status();
  for (const Key* key : *keys) {
    absl::StatusOr<nlohmann::json> value = parse_value(name, key->type, text);
    if (!value.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(av(where), where.empty() ? "" : ": ", value.status().message()));
    }
    const std::string alias = key->name == name ? "" : absl::StrCat(" (", av(name), ")");
    settings.insert_or_assign(std::string(key->name),
                              Setting{*std::move(value), origin + alias, layer});
  }
  return absl::OkStatus();
}

absl::Status set_from_entry(Settings& settings, const std::string& path, const YamlEntry& entry,
                            Layer layer) {
  const std::string origin = absl::StrCat(path, ":", entry.line);
  if (entry.key == kLoraBlock && entry.value.is_object()) {
    for (const auto& [name, value] : entry.value.items()) {
      auto status = set_from_text(settings, name, text_of(value), origin, layer);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  const Key* key = find_key(entry.key);
  if (!entry.is_scalar && key != nullptr && key->type == ValueType::kString) {
    return absl::InvalidArgumentError(absl::StrCat(origin, ": ", entry.key, "=", show(entry.value),
                                                   ": expected ", av(type_name(key->type))));
  }
  return set_from_text(settings, entry.key, entry.is_scalar ? entry.text : text_of(entry.value),
                       origin, layer);
}

}  // namespace muster::jobspec
