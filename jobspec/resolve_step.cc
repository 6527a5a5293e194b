#include "jobspec/resolve_step.h"

#include <algorithm>
#include <array>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "jobspec/keys/model_keys.h"
#include "jobspec/keys/optimizer_keys.h"
#include "jobspec/keys/remat_keys.h"
#include "jobspec/settings/restrictions.h"
#include "jobspec/settings/settings_reader.h"

namespace muster::jobspec {
namespace {

// The keys that one training step can depend on, for a given model and batch.
constexpr std::array<std::string_view, 14> kStepKeys = {"learning_rate",
                                                        "adam_b1",
                                                        "adam_b2",
                                                        "adam_eps",
                                                        "adam_eps_root",
                                                        "adam_weight_decay",
                                                        "weight_decay_times_learning_rate",
                                                        "adamw_mask",
                                                        "adam_clip_threshold",
                                                        "gradient_clipping_threshold",
                                                        "opt_type",
                                                        "dtype",
                                                        "remat_policy",
                                                        "threads_per_rank"};

}  // namespace

absl::StatusOr<trainer::TrainConfig> resolve_step(const std::vector<std::string>& overrides,
                                                  std::vector<std::string>& warnings) {
  Settings settings;
  for (const std::string& text : overrides) {
    const auto split = split_override(text);
    if (!split.ok()) return split.status();
    const auto keys = keys_named(split->first, "");
    if (!keys.ok()) return keys.status();
    for (const Key* key : *keys) {
      if (is_remat_key(key->name)) continue;
      if (std::find(kStepKeys.begin(), kStepKeys.end(), key->name) != kStepKeys.end()) continue;
      std::string known;
      for (const std::string_view name : kStepKeys)
        absl::StrAppend(&known, known.empty() ? "" : ", ", av(name));
      return absl::InvalidArgumentError(absl::StrCat(
          text, ": ", av(key->name), " does not affect a single step; these keys do: ", known));
    }
    absl::Status status =
        set_from_text(settings, split->first, split->second, kCommandLine, Layer::kCommandLine);
    if (!status.ok()) return status;
  }
  if (auto status = check_restrictions(settings); !status.ok()) return status;
  SettingsReader reader(settings);
  trainer::TrainConfig train;
  train.run_name = "debug";
  train.steps = train.optimizer.schedule_steps = 1;
  train.enable_checkpointing = false;
  // The step brings its own model; the smallest valid one is a placeholder.
  trainer::ModelConfig& model = train.model;
  model.vocab_size = model.head_dim = 2;
  model.emb_dim = model.num_layers = model.num_query_heads = model.num_kv_heads = model.mlp_dim = 1;
  train.max_target_length = 1;
  read_optimizer(reader, train.optimizer, warnings);
  reader.read("threads_per_rank", train.threads);
  train.remat_policy = trainer::RematPolicy::kNone;
  read_dtype(reader, train.dtype);
  std::vector<std::string> of_memory;  // all policies compute the same
  if (auto status = read_remat(reader, train, of_memory); !status.ok()) return status;
  if (!reader.status().ok()) return reader.status();
  if (auto status = trainer::validate(train); !status.ok()) return status;
  return train;
}

}  // namespace muster::jobspec
