#include "jobspec/explain.h"

#include <algorithm>
#include <utility>

#include "common/text/absl_view.h"
#include "jobspec/mesh/mesh_keys.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

constexpr std::string_view kDerived = "Derived";

// Null and -1 both mean "none"; the trainer uses one of them.
bool says_none(const nlohmann::json& value) { return value.is_null() || value == -1; }
bool means_the_same(const nlohmann::json& stated, const nlohmann::json& resolved) {
  return stated == resolved || (says_none(stated) && (resolved == -1 || resolved == 0));
}

// RoPE keys of Llama 3.1, for which the trainer gets other values if another RoPE is used.
bool is_unused_rope(std::string_view key, const Settings& settings) {
  static constexpr std::string_view kScaling[] = {
      "rope_scaling_factor", "rope_low_frequency_factor", "rope_high_frequency_factor",
      "rope_original_max_position"};
  const Setting* type = find_setting(settings, "rope_type");
  const Setting* use = find_setting(settings, "rope_use_scale");
  const bool is_used =
      type != nullptr && type->value == "llama3.1" && (use == nullptr || use->value == true);
  return !is_used && std::find(std::begin(kScaling), std::end(kScaling), key) != std::end(kScaling);
}

ExplainedKey explain_key(const Key& key, const Setting& setting, const Config& config,
                         const nlohmann::json& train, bool is_unused) {
  ExplainedKey row{.key = std::string(key.name),
                   .topic = topic_of(key),
                   .value = setting.value,
                   .origin = setting.origin,
                   .stated = {},
                   .stated_origin = {}};
  const bool is_other_name = !setting.written.is_null();
  if (is_other_name) {
    row.stated = setting.written;
    row.stated_origin = std::exchange(row.origin, "derived");
  }
  const auto resolved = train.find(row.key);
  if (resolved != train.end() && !means_the_same(setting.value, *resolved) && !is_unused &&
      !is_other_name) {
    row.stated = std::exchange(row.value, *resolved);
    row.stated_origin = std::exchange(row.origin, "derived");
  }
  const Setting* usual = find_setting(config.defaults, key.name);
  const bool is_edit = config.edits.contains(key.name);
  row.is_changed = is_of_user(setting) ? usual == nullptr || is_other_name || is_edit ||
                                             usual->value != setting.value
                                       : is_edit && setting.layer == Layer::kBaseFile;
  return row;
}

// Replaces a slice's sequences, as the trainer counts them, by those of a rank, as the keys do.
void state_batch_by_rank(const ResolvedJob& job, nlohmann::json& train) {
  const auto slices = static_cast<double>(job.mesh.group_size({.axes = trainer::kBatchAxes}));
  const double share = slices / job.mesh.ranks();
  train["per_device_batch_size"] = job.train.per_device_batch_size * share;
  train["eval_per_device_batch_size"] = job.train.eval.per_device_batch_size * share;
  train["global_batch_size"] = global_batch_size(job.mesh, job.train);
}

}  // namespace

std::vector<ExplainedKey> explain(const Config& config, const ResolvedJob& job) {
  nlohmann::json train = trainer::to_json(job.train);
  state_batch_by_rank(job, train);
  // The trainer reads the tokens of a text.
  if (job.texts.train) train.erase("dataset_type");
  std::vector<ExplainedKey> rows;
  for (const Key& key : all_keys()) {
    const Setting* setting = find_setting(config.settings, key.name);
    if (setting == nullptr) continue;
    rows.push_back(
        explain_key(key, *setting, config, train, is_unused_rope(key.name, config.settings)));
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
