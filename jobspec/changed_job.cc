#include "jobspec/changed_job.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "jobspec/keys/recovery_keys.h"
#include "jobspec/resolve.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {
namespace {

using nlohmann::json;

constexpr std::string_view kModelWhy = "its checkpoints would not fit the model";
constexpr std::string_view kStateWhy = "its checkpoints would not fit the optimizer's state";
constexpr std::string_view kFolderWhy = "its checkpoints are in the former folder";
constexpr std::string_view kNodesWhy = "an update keeps the nodes and ranks of the job";
constexpr std::string_view kStartWhy = "it is read only when a job begins without a checkpoint";
// A part of a job that an update cannot change: a key of the trainer's config, or "spec.FIELD".
struct FixedPart {
  std::string_view key;
  std::string_view why;
};
constexpr auto kFixedParts = std::to_array<FixedPart>({
    {"weight_dtype", kModelWhy},
    {"opt_type", kStateWhy},
    {"mu_dtype", kStateWhy},
    {"run_name", kFolderWhy},
    {"checkpoint_directory", kFolderWhy},
    {"enable_checkpointing", "the job could not resume from its checkpoint"},
    {"init_weights_seed", kStartWhy},
    {"load_parameters_path", kStartWhy},
    {"lora_restore_path", kStartWhy},
    {"spec.output_directory", kFolderWhy},
    {"spec.nodes", kNodesWhy},
    {"spec.ranks_per_node", kNodesWhy},
    {"spec.gpus_per_rank", kNodesWhy},
    {"spec.spares", kNodesWhy},
    {"spec.min_nodes", kNodesWhy},
});
// The keys of the model that change neither its parameters nor their meaning.
constexpr auto kFreeModelKeys = std::to_array<std::string_view>(
    {"capacity_factor", "dropout_rate", "input_dropout_rate", "load_balance_loss_weight",
     "lora_dropout", "z_loss_multiplier"});
// The keys that change the time of a step, so that the job's plan does not hold any more. So do
// those of the mesh.
constexpr auto kTimeKeys = std::to_array<std::string_view>(
    {"async_checkpointing", "checkpoint_period", "cuda_graphs", "dataset_path", "dataset_type",
     "dtype", "gradient_accumulation_steps", "hardware", "matmul_precision", "max_target_length",
     "num_pipeline_microbatches", "num_pipeline_repeats", "per_device_batch_size", "remat_policy",
     "threads", "zero_stage"});

bool is_one_of(std::span<const std::string_view> keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

// Returns a value as a user types it.
std::string text_of(const json& value) {
  if (value.is_null()) return "None";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Returns the path of the root base.yml, and the settings as flags.
absl::StatusOr<ConfigSource> source_of(const v1::JobSpec& job, const ChangeOptions& options) {
  const json saved = json::parse(job.settings_json(), nullptr, /*allow_exceptions=*/false);
  if (!saved.is_object() || !saved.contains("settings") || !saved["settings"].is_object()) {
    return absl::FailedPreconditionError(
        "the job has no record of its settings, because an earlier version has submitted it: "
        "cancel it, and submit it again with the changed keys; it resumes from its newest "
        "checkpoint");
  }
  ConfigSource source;
  source.shipped_base = options.shipped_base;
  source.path = saved.value("base", std::string());
  std::error_code error;
  if (source.path.empty() || !std::filesystem::is_regular_file(source.path, error))
    source.path = options.shipped_base;
  for (const auto& [key, value] : saved["settings"].items())
    source.flags.push_back({key, text_of(value), "the job's settings"});
  return source;
}

absl::StatusOr<ResolvedJob> resolve_with(const v1::JobSpec& job, const ConfigSource& saved,
                                         const std::vector<std::string>& overrides,
                                         const ChangeOptions& options, std::string* settings) {
  ConfigSource source = saved;
  source.overrides = overrides;
  const auto config = load_config(source);
  if (!config.ok()) return config.status();
  if (settings != nullptr) {
    json changed = json::parse(settings_to_json(*config, options.working_directory));
    changed["base"] = source.path;
    *settings = changed.dump();
  }
  LaunchOptions launch;
  launch.nodes = job.nodes();
  launch.ranks_per_node = job.ranks_per_node();
  launch.working_directory = options.working_directory;
  launch.home = options.home;
  launch.default_run_name = job.name();
  launch.user = job.user();
  launch.priority = job.priority();
  launch.gpus_per_rank = job.gpus_per_rank();
  return resolve_job(*config, launch);
}

struct Differences {
  json config;                    // the job's config with the changes
  std::vector<std::string> keys;  // changed keys, and "spec.FIELD"
  std::set<std::string> of_model;
};

// The config is a flat object, which lacks some keys whose values are their defaults.
Differences differences(const v1::JobSpec& job, const ResolvedJob& before,
                        const ResolvedJob& after) {
  Differences found;
  found.config = json::parse(job.train_config_json(), nullptr, /*allow_exceptions=*/false);
  const json was = trainer::to_json(before.train), is = trainer::to_json(after.train);
  for (const auto& [key, value] : is.items()) {
    const auto former = was.find(key);
    if (former != was.end() && *former == value) continue;
    found.config[key] = value;
    found.keys.push_back(key);
  }
  for (const auto& entry : was.items()) {
    if (is.contains(entry.key())) continue;
    found.config.erase(entry.key());
    found.keys.push_back(entry.key());
  }
  for (const ResolvedJob* resolved : {&before, &after}) {
    const json model = trainer::to_json(resolved->train.model);
    for (const auto& entry : model.items()) found.of_model.insert(entry.key());
  }
  const auto compare = [&](const char* field, const auto& a, const auto& b) {
    if (a != b) found.keys.push_back(absl::StrCat("spec.", field));
  };
  compare("output_directory", before.spec.output_directory(), after.spec.output_directory());
  compare("nodes", before.spec.nodes(), after.spec.nodes());
  compare("ranks_per_node", before.spec.ranks_per_node(), after.spec.ranks_per_node());
  compare("gpus_per_rank", before.spec.gpus_per_rank(), after.spec.gpus_per_rank());
  compare("spares", before.spec.spares(), after.spec.spares());
  compare("min_nodes", before.spec.min_nodes(), after.spec.min_nodes());
  return found;
}

// Returns the first change that an update cannot make.
std::optional<FixedPart> fixed_part_of(const Differences& found) {
  for (const std::string& key : found.keys) {
    if (found.of_model.contains(key) && !is_one_of(kFreeModelKeys, key))
      return FixedPart{"model", kModelWhy};
    const auto part = std::ranges::find(kFixedParts, key, &FixedPart::key);
    if (part != kFixedParts.end()) return *part;
  }
  return std::nullopt;
}

// Returns the word that changes the part, or all words if only their combination does.
std::string word_that_changes(const FixedPart& part, const v1::JobSpec& job,
                              const ConfigSource& source, const ResolvedJob& before,
                              const std::vector<std::string>& overrides,
                              const ChangeOptions& options) {
  std::string all;
  for (const std::string& word : overrides) {
    absl::StrAppend(&all, all.empty() ? "" : " ", word);
    const auto alone = resolve_with(job, source, {word}, options, nullptr);
    if (!alone.ok()) continue;
    const auto changed = fixed_part_of(differences(job, before, *alone));
    if (changed && changed->key == part.key) return word;
  }
  return all;
}

bool keeps_step_time(const std::vector<std::string>& keys) {
  return std::ranges::none_of(keys, [](const std::string& key) {
    return is_one_of(kTimeKeys, key) || absl::EndsWith(key, "_parallelism");
  });
}

}  // namespace

std::string settings_to_json(const Config& config, const std::string& working_directory) {
  json settings = json::object();
  for (const auto& [key, setting] : config.settings) {
    const bool is_edit = setting.layer == Layer::kBaseFile && config.edits.contains(key);
    const Key* known = find_key(key);
    const bool has_effect = known != nullptr && known->support != Support::kNoEffect;
    if (!has_effect || (!is_of_user(setting) && !is_edit)) continue;
    settings[key] = setting.written.is_null() ? setting.value : setting.written;
  }
  const std::filesystem::path base = std::filesystem::path(working_directory) / config.root;
  return json{{"base", base.lexically_normal().string()}, {"settings", std::move(settings)}}.dump();
}

absl::StatusOr<UpdatedJob> change_job(const v1::JobSpec& job,
                                      const std::vector<std::string>& overrides,
                                      const ChangeOptions& options) {
  const auto source = source_of(job, options);
  if (!source.ok()) return source.status();
  const auto before = resolve_with(job, *source, {}, options, nullptr);
  if (!before.ok()) return before.status();
  UpdatedJob changed{job, {}};
  const auto after =
      resolve_with(job, *source, overrides, options, changed.spec.mutable_settings_json());
  if (!after.ok()) return after.status();
  Differences found = differences(job, *before, *after);
  if (const auto part = fixed_part_of(found)) {
    return absl::InvalidArgumentError(
        absl::StrCat(word_that_changes(*part, job, *source, *before, overrides, options),
                     ": a job cannot be updated with it: ", av(part->why), "; submit a new job"));
  }
  const bool is_planned = keeps_step_time(found.keys);
  if (!is_planned)
    for (const char* key : {"planned_step_seconds", "planned_communication_seconds",
                            "planned_data_seconds", "planned_checkpoint_seconds"})
      found.config.erase(key);
  const auto train = trainer::train_config_from_json(found.config);
  if (!train.ok()) return train.status();
  changed.spec.set_train_config_json(trainer::to_json(*train).dump());
  changed.spec.set_steps(train->steps);
  changed.spec.set_segment_nodes(after->spec.segment_nodes());
  *changed.spec.mutable_stack_traces() = after->spec.stack_traces();
  if (!is_planned) {
    changed.spec.set_planned_step_us(0);
    changed.spec.set_planned_communication_us(0);
    changed.spec.set_planned_data_us(0);
    changed.spec.set_planned_checkpoint_us(0);
    changed.spec.set_planned_memory_bytes(0);
  }
  changed.warnings = after->warnings;
  std::erase_if(changed.warnings, [&](const std::string& warning) {
    return std::ranges::find(before->warnings, warning) != before->warnings.end();
  });
  changed.spec.clear_smaller();
  const Recovery recovery{after->spec.restarts_max(), job.spares(), job.min_nodes()};
  if (auto fits = fill_recovery(*train, recovery, changed.spec, changed.warnings); !fits.ok())
    return fits;
  return changed;
}

}  // namespace muster::jobspec
