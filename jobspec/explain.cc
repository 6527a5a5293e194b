#include "jobspec/explain.h"

#include <utility>

#include "common/absl_view.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {
namespace {

constexpr std::string_view kDerived = "Derived";

// Two ways to write "none", of which the trainer has its own.
bool says_none(const nlohmann::json& value) { return value.is_null() || value == -1; }
bool means_the_same(const nlohmann::json& stated, const nlohmann::json& resolved) {
  return stated == resolved || (says_none(stated) && (resolved == -1 || resolved == 0));
}

ExplainedKey explain_key(const Key& key, const Setting& setting, const Settings& base,
                         const nlohmann::json& train) {
  ExplainedKey row{.key = std::string(key.name),
                   .topic = topic_of(key),
                   .value = setting.value,
                   .origin = setting.origin,
                   .stated = {},
                   .stated_origin = {}};
  const Setting* usual = find_setting(base, key.name);
  row.is_changed = usual == nullptr || usual->value != setting.value;
  const auto resolved = train.find(row.key);
  if (resolved != train.end() && !means_the_same(setting.value, *resolved)) {
    row.stated = std::exchange(row.value, *resolved);
    row.stated_origin = std::exchange(row.origin, "derived");
  }
  return row;
}

}  // namespace

std::vector<ExplainedKey> explain(const Config& config, const ResolvedJob& job) {
  const nlohmann::json train = trainer::to_json(job.train);
  std::vector<ExplainedKey> rows;
  for (const Key& key : all_keys()) {
    const Setting* setting = find_setting(config.settings, key.name);
    if (setting != nullptr) rows.push_back(explain_key(key, *setting, config.base, train));
  }
  for (const auto& [key, value] : train.items()) {
    if (find_setting(config.settings, key) != nullptr) continue;
    rows.push_back({.key = key,
                    .topic = kDerived,
                    .value = value,
                    .origin = "derived",
                    .stated = {},
                    .stated_origin = {}});
  }
  return rows;
}

}  // namespace muster::jobspec
