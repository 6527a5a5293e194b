#include "trainer_core/base/saved_plan_check.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/absl_view.h"
#include "common/text/escape.h"
#include "common/text/number_text.h"
#include "trainer_core/base/json_file.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

constexpr size_t kNameShown = 100;

// Keys in the order in which their differences are reported. Keys of the mesh come first, and all
// others last, by name.
constexpr auto kOrder = std::to_array<std::string_view>({
    "model_name",
    "base_num_decoder_layers",
    "base_emb_dim",
    "base_mlp_dim",
    "base_num_query_heads",
    "base_num_kv_heads",
    "head_dim",
    "vocab_size",
    "num_experts",
    "max_target_length",
    "per_device_batch_size",
    "gradient_accumulation_steps",
    "num_pipeline_microbatches",
    "num_pipeline_repeats",
    "hardware",
    "dtype",
    "weight_dtype",
    "mu_dtype",
    "matmul_precision",
    "quantization",
    "remat_policy",
    "zero_stage",
    "opt_type",
    "steps",
    "learning_rate",
    "lr_schedule_type",
});

constexpr auto kFree = std::to_array<std::string_view>({
    // names, logs and outputs
    "run_name",
    "log_period",
    "metrics_file",
    "tensorboard_dir",
    "profiler",
    "skip_first_n_steps_for_profiler",
    "profiler_steps",
    "upload_all_profiler_results",
    "compiled_trainstep_file",
    "planned_step_seconds",
    "planned_communication_seconds",
    "planned_data_seconds",
    "planned_checkpoint_seconds",
    // data: a plan has a layout for packed sequences, and one for others
    "dataset_type",
    "dataset_path",
    "packing",
    "use_sft",
    "sft_train_on_completion_only",
    "sft_long_samples",
    "sft_loss_average",
    "dpo_loss_type",
    "dpo_beta",
    "dpo_label_smoothing",
    "num_epoch",
    "enable_data_shuffling",
    "data_shuffle_seed",
    "reuse_example_batch",
    "tokenizer_path",
    "tokenizer_type",
    "sample_begin_id",
    "eval_interval",
    "eval_at_end",
    "eval_start_step",
    "eval_steps",
    "eval_per_device_batch_size",
    "target_eval_loss",
    "eval_dataset_path",
    "eval_holdout_fraction",
    "eval_tasks",
    "eval_output",
    "eval_truncate",
    "eval_bos_id",
    "eval_add_bos",
    "metric_for_best_model",
    "early_stopping_patience",
    "keep_best_checkpoint",
    // initial values
    "init_weights_seed",
    "init_std",
    "embedding_init_std",
    "load_parameters_path",
    "lora_restore_path",
    // constants of the optimizer
    "adam_b1",
    "adam_b2",
    "adam_eps",
    "adam_eps_root",
    "adam_weight_decay",
    "weight_decay_times_learning_rate",
    "adamw_mask",
    "adam_clip_threshold",
    "gradient_clipping_threshold",
    "not_finite_policy",
    "skip_step_on_spikes",
    "skip_step_interval",
    "skip_step_scaling_factor",
    "rollback_after_spikes",
    "max_rollbacks",
    // checkpoints: the staging buffer is the last of a layout
    "enable_checkpointing",
    "checkpoint_directory",
    "async_checkpointing",
    "checkpoint_period",
    "max_num_checkpoints_to_keep",
    "save_checkpoint_on_completion",
    "checkpoint_storage_target_data_file_size_bytes",
    "enable_emergency_checkpoint",
    "local_checkpoint_directory",
    "local_checkpoint_period",
    "resume_with_other_data",
    // compared as the number of threads that a rank has
    "threads",
});

bool is_of_mesh(std::string_view key) {
  return absl::StartsWith(av(key), "ici_") || absl::StartsWith(av(key), "dcn_");
}

// Returns the keys of both configs in the order of their reports.
std::vector<std::string> keys_in_order(const Json& a, const Json& b) {
  std::vector<std::string> keys;
  for (const Json* config : {&a, &b})
    for (const auto& item : config->items())
      if (std::ranges::find(keys, item.key()) == keys.end()) keys.push_back(item.key());
  const auto place = [](const std::string& key) {
    if (is_of_mesh(key)) return ptrdiff_t{-1};
    return std::ranges::find(kOrder, key) - kOrder.begin();
  };
  std::ranges::sort(keys, [&](const std::string& x, const std::string& y) {
    return std::pair(place(x), std::string_view(x)) < std::pair(place(y), std::string_view(y));
  });
  return keys;
}

// Returns the value as users write it: per_device_batch_size is per rank there.
std::string shown_value(const TrainConfig& config, const Json& json, const std::string& key) {
  if (key == "per_device_batch_size") {
    const Mesh mesh = mesh_of(config.mesh);
    return absl::StrFormat("%g", static_cast<double>(config.per_device_batch_size) *
                                     batch_slice(mesh, 0).count / mesh.ranks());
  }
  const auto found = json.find(key);
  if (found == json.end()) return "its default";
  return found->is_string() ? printable(found->get<std::string>(), kNameShown) : show_json(*found);
}

absl::Status refuse(const SavedPlan& plan, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("compiled_trainstep_file=", plan.path, ": ", av(what)));
}

const SavedLayout* layout_of(const SavedPlan& plan, int32_t stage, bool packed) {
  const auto found = std::ranges::find_if(plan.layouts, [&](const SavedLayout& layout) {
    return layout.stage == stage && layout.packed == packed;
  });
  return found == plan.layouts.end() ? nullptr : &*found;
}

constexpr const char* kOtherBuild =
    "; the plan is of another build of muster-trainer, or its file was edited: plan again";

// Returns how the buffers differ; empty if they do not.
std::string difference(const SavedLayout& saved, const OwnPlan& own) {
  const std::vector<PlannedBuffer>& mine = own.memory.buffers();
  const size_t staging = saved.buffers.empty() ? 0 : 1;
  if (mine.size() != saved.buffers.size() && mine.size() + staging != saved.buffers.size())
    return absl::StrCat("has ", saved.buffers.size(), " buffers, and this rank needs ",
                        mine.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    const PlannedBuffer& there = saved.buffers[i];
    const PlannedBuffer& here = mine[i];
    if (there.name != here.name || there.category != here.category) {
      return absl::StrCat("has the buffer ", printable(there.name, kNameShown), " at position ", i,
                          ", and this rank has ", here.name);
    }
    const bool fits = own.is_largest ? there.bytes == here.bytes && there.offset == here.offset
                                     : there.bytes >= here.bytes;
    if (!fits) {
      return absl::StrCat("has ", there.bytes, " bytes at offset ", there.offset, " for ",
                          here.name, ", and this rank needs ", here.bytes, " at ", here.offset);
    }
  }
  const size_t device = own.memory.device_bytes();
  if (own.is_largest && device != saved.device_bytes && mine.size() == saved.buffers.size())
    return absl::StrCat("has ", saved.device_bytes, " bytes of device memory, and this rank needs ",
                        device);
  return "";
}

}  // namespace

bool is_free_of_plan(std::string_view key) { return std::ranges::find(kFree, key) != kFree.end(); }

absl::Status check_planned_config(const SavedPlan& plan, const TrainConfig& config) {
  const Mesh there = mesh_of(plan.config.mesh), here = mesh_of(config.mesh);
  const auto size = [](const Mesh& mesh) {
    return absl::StrCat(mesh.nodes(), mesh.nodes() == 1 ? " node of " : " nodes of ",
                        mesh.ranks_per_node(), mesh.ranks_per_node() == 1 ? " rank" : " ranks");
  };
  if (size(there) != size(here))
    return refuse(plan, absl::StrCat("the plan is for ", size(there), ", and the job has ",
                                     size(here), "; use as many, or plan again"));
  const Json planned = to_json(plan.config), requested = to_json(config);
  for (const std::string& key : keys_in_order(planned, requested)) {
    if (is_free_of_plan(key)) continue;
    if (key == "hardware" && config.hardware == Hardware::kAuto) continue;
    const auto a = planned.find(key), b = requested.find(key);
    if (a != planned.end() && b != requested.end() && *a == *b) continue;
    const std::string value = shown_value(plan.config, planned, key);
    return refuse(plan, absl::StrCat("the plan has ", key, "=", value, ", and the job has ",
                                     shown_value(config, requested, key),
                                     "; use the plan's value, or plan again"));
  }
  return absl::OkStatus();
}

absl::Status check_planned_device(const SavedPlan& plan, std::string_view device) {
  if (!plan.has_backend)
    return refuse(plan, absl::StrCat("the plan is for ", plan.device, " (", plan.topology,
                                     "), for which the trainer has no backend; plan for your "
                                     "devices with compile_topology"));
  if (plan.config.hardware == Hardware::kCpu || device == plan.device) return absl::OkStatus();
  return refuse(plan, absl::StrCat("the plan is for ", plan.device, " (", plan.topology,
                                   "), and this device is ", av(device),
                                   "; plan for it with compile_topology"));
}

absl::Status check_planned_threads(const SavedPlan& plan, int32_t threads) {
  if (plan.threads == 0 || plan.threads == threads) return absl::OkStatus();
  return refuse(
      plan, absl::StrCat("the plan is for ", counted(static_cast<uint64_t>(plan.threads), "thread"),
                         " per rank, and this rank has ", threads,
                         "; set threads_per_rank=", plan.threads, ", or plan again"));
}

absl::Status check_own_plan(const SavedPlan& plan, const OwnPlan& own) {
  const auto stage = static_cast<size_t>(own.stage);
  if (stage >= plan.schedule.size() || plan.schedule[stage] != own.schedule)
    return refuse(plan, absl::StrCat("the plan has another order of passes for stage ", own.stage,
                                     kOtherBuild));
  const SavedLayout* const layout = layout_of(plan, own.stage, own.packed);
  if (layout == nullptr)
    return refuse(plan, absl::StrCat("the plan has no layout for stage ", own.stage, kOtherBuild));
  const std::string what = difference(*layout, own);
  if (what.empty()) return absl::OkStatus();
  return refuse(plan, absl::StrCat("the layout of stage ", own.stage, " ", what, kOtherBuild));
}

}  // namespace muster::trainer
