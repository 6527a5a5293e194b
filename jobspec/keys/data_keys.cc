#include "jobspec/keys/data_keys.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "jobspec/files/value.h"
#include "jobspec/keys/text_keys.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

constexpr std::string_view kEvalOnly = "eval_only";

// A named data set must not be ignored silently. Synthetic runs are often given MaxText's
// placeholder dataset_path=local, which is no path.
absl::Status read_dataset_path(SettingsReader& reader, const std::string& dataset_type,
                               trainer::TrainConfig& train, std::vector<std::string>& warnings) {
  if (is_text(dataset_type)) return reader.status();
  std::string path;
  reader.read("dataset_path", path);
  if (train.dataset_type == trainer::DatasetType::kShards) {
    train.dataset_path = path;
  } else if (!path.empty() && reader.is_set_by_user("dataset_path")) {
    warnings.push_back(
        absl::StrCat("dataset_path=", show(path), " has no effect: dataset_type is synthetic"));
  }
  return reader.status();
}

// `batch`: the training sequences of a slice, which `ranks` compute together.
void read_eval(SettingsReader& reader, int32_t batch, int32_t ranks, trainer::EvalConfig& eval) {
  reader.read("eval_interval", eval.interval);
  if (eval.interval <= 0) eval.interval = -1;
  reader.read("eval_start_step", eval.start_step);
  reader.read("eval_steps", eval.steps);
  reader.read("target_eval_loss", eval.target_loss);
  if (is_evaluation(reader)) {
    eval.interval = 1;
    eval.start_step = 0;
    eval.target_loss = 0;
  }
  reader.read("eval_dataset_path", eval.dataset_path);
  reader.read("eval_holdout_fraction", eval.holdout_fraction);
  reader.read("eval_tasks", eval.tasks);
  reader.read("eval_truncate", eval.truncate_contexts);
  reader.read("eval_bos_id", eval.bos_id);
  reader.read("eval_add_bos", eval.add_bos);
  reader.read("metric_for_best_model", eval.best_metric);
  reader.read("early_stopping_patience", eval.early_stopping_patience);
  reader.read("keep_best_checkpoint", eval.keep_best_checkpoint);
  double own_batch = 0;
  reader.read("eval_per_device_batch_size", own_batch);
  own_batch *= ranks;
  reader.require(own_batch >= 0 && own_batch <= std::numeric_limits<int32_t>::max() &&
                     std::floor(own_batch) == own_batch,
                 "eval_per_device_batch_size",
                 ranks == 1 ? "must be a whole number of sequences (0: per_device_batch_size)"
                            : absl::StrCat("must make a whole number of sequences of ", ranks,
                                           " ranks (0: per_device_batch_size)"));
  eval.per_device_batch_size =
      own_batch >= 1 && reader.status().ok() ? static_cast<int32_t>(own_batch) : batch;
}

// Command lines of MaxText and Pax name a split of a data set that does not exist here.
void warn_of_nothing_to_evaluate(SettingsReader& reader, trainer::TrainConfig& train,
                                 std::vector<std::string>& warnings) {
  trainer::EvalConfig& eval = train.eval;
  if (!eval.enabled() || eval.has_data() || !eval.tasks.empty()) return;
  reader.require(!is_evaluation(reader), kEvalOnly,
                 train.dataset_type == trainer::DatasetType::kSynthetic
                     ? "dataset_type=synthetic has nothing to evaluate; give the data: "
                       "dataset_type=shards dataset_path=FOLDER eval_dataset_path=FOLDER2, or "
                       "eval_tasks"
                     : "there is nothing to evaluate; set eval_dataset_path=FOLDER, or "
                       "eval_holdout_fraction to that of the training, or eval_tasks");
  warnings.push_back(absl::StrCat("eval_interval=", eval.interval,
                                  " has no effect: there is nothing to evaluate; set "
                                  "eval_holdout_fraction, or eval_dataset_path"));
  eval.interval = -1;
}

// Tasks without an interval are evaluated once, after the last step, whatever ends the training.
void evaluate_tasks_at_end(const SettingsReader& reader, trainer::TrainConfig& train) {
  if (train.eval.enabled() || train.eval.tasks.empty()) return;
  train.eval.at_end = !reader.is_set_by_user("eval_interval");
}

// Keys that have no effect without evaluations, or without a best one. A held-out part always has
// an effect.
void warn_of_no_evaluation(const SettingsReader& reader, const trainer::EvalConfig& eval,
                           std::vector<std::string>& warnings) {
  if (!eval.tracks_best() && reader.is_set_by_user("metric_for_best_model")) {
    warnings.emplace_back(
        "metric_for_best_model has no effect: set early_stopping_patience or "
        "keep_best_checkpoint=True");
  }
  if (eval.enabled()) return;
  for (const char* key : {"eval_dataset_path", "eval_steps", "target_eval_loss", "eval_tasks"}) {
    if (reader.is_set_by_user(key))
      warnings.push_back(absl::StrCat(key, " has no effect: nothing is evaluated (eval_interval)"));
  }
}

// MaxText's default is 1; its synthetic data ignores it.
void read_epochs(SettingsReader& reader, trainer::TrainConfig& train,
                 std::vector<std::string>& warnings) {
  reader.read("num_epoch", train.num_epoch);
  if (train.dataset_type != trainer::DatasetType::kSynthetic || train.num_epoch != 1) return;
  if (reader.is_set_by_user("num_epoch"))
    warnings.emplace_back("num_epoch=1 has no effect: dataset_type=synthetic has no end");
  train.num_epoch = -1;
}

void read_sft(SettingsReader& reader, const std::string& dataset_type, trainer::SftConfig& sft,
              std::vector<std::string>& warnings) {
  reader.read("use_sft", sft.enabled);
  reader.read("sft_train_on_completion_only", sft.completion_only);
  reader.read_choice("sft_long_samples", trainer::kLongSamplesNames, sft.long_samples);
  reader.read_choice("sft_loss_average", trainer::kLossAverageNames, sft.loss_average);
  reader.require(!sft.enabled || dataset_type == "shards", "use_sft",
                 "needs dataset_type=shards and a folder that muster tokenize --sft made");
  if (sft.enabled) return;
  for (const char* const key :
       {"sft_train_on_completion_only", "sft_long_samples", "sft_loss_average"}) {
    if (reader.is_set_by_user(key))
      warnings.push_back(absl::StrCat(key, " has no effect: use_sft is not True"));
  }
  sft = {};
}

void read_dpo(SettingsReader& reader, const std::string& dataset_type, trainer::DpoConfig& dpo,
              std::vector<std::string>& warnings) {
  reader.read("use_dpo", dpo.enabled);
  reader.read_choice("dpo_loss_type", trainer::kDpoLossNames, dpo.loss);
  reader.read("dpo_beta", dpo.beta);
  reader.read("dpo_label_smoothing", dpo.label_smoothing);
  reader.require(!dpo.enabled || dataset_type == "shards", "use_dpo",
                 "needs dataset_type=shards and a folder that muster tokenize --dpo made");
  if (dpo.enabled) return;
  for (const char* const key : {"dpo_loss_type", "dpo_beta", "dpo_label_smoothing"}) {
    if (reader.is_set_by_user(key))
      warnings.push_back(absl::StrCat(key, " has no effect: use_dpo is not True"));
  }
  dpo = {};
}

}  // namespace

absl::Status read_data(SettingsReader& reader, const std::string& working_directory,
                       trainer::TrainConfig& train, std::vector<std::string>& warnings) {
  std::string dataset_type = "synthetic";
  reader.read("dataset_type", dataset_type);
  train.dataset_type = dataset_type == "synthetic" ? trainer::DatasetType::kSynthetic
                                                   : trainer::DatasetType::kShards;
  if (auto status = read_dataset_path(reader, dataset_type, train, warnings); !status.ok())
    return status;
  warn_of_unread_text_keys(reader, dataset_type, warnings);
  reader.read("packing", train.packing);
  read_sft(reader, dataset_type, train.sft, warnings);
  read_dpo(reader, dataset_type, train.dpo, warnings);
  read_epochs(reader, train, warnings);
  reader.read("data_shuffle_seed", train.data_shuffle_seed);
  reader.read("enable_data_shuffling", train.enable_data_shuffling);
  int64_t reuse = 0;
  reader.read("reuse_example_batch", reuse);
  train.reuse_example_batch = reuse != 0;
  reader.read("resume_with_other_data", train.resume_with_other_data);
  read_eval(reader, train.per_device_batch_size,
            trainer::ranks_of_slice(trainer::mesh_of(train.mesh)), train.eval);
  if (is_text(dataset_type)) read_text_paths(reader, dataset_type, working_directory, train);
  evaluate_tasks_at_end(reader, train);
  warn_of_no_evaluation(reader, train.eval, warnings);
  warn_of_nothing_to_evaluate(reader, train, warnings);
  return reader.status();
}

bool is_evaluation(SettingsReader& reader) {
  bool only = false;
  reader.read(kEvalOnly, only);
  return only;
}

absl::Status set_evaluation_only(SettingsReader& reader, trainer::TrainConfig& train,
                                 std::vector<std::string>& warnings) {
  if (!is_evaluation(reader)) return reader.status();
  train.steps = 0;
  train.enable_checkpointing = false;
  train.enable_emergency_checkpoint = false;
  // In the folder of the training, the earlier step would hide later points of its curves.
  if (!train.tensorboard_dir.empty()) train.tensorboard_dir += "_eval";
  std::error_code error;
  const bool has_folder = std::filesystem::is_directory(train.checkpoint_directory, error);
  const bool has_own_adapters = train.model.lora.enabled() && train.lora_restore_path.empty();
  // The run's base, and its newest adapters.
  if (has_own_adapters && !train.load_parameters_path.empty() && has_folder &&
      reader.is_set_by_user("run_name")) {
    train.lora_restore_path = train.checkpoint_directory;
    return reader.status();
  }
  if (has_own_adapters && !train.load_parameters_path.empty()) {
    reader.require(false, kEvalOnly,
                   absl::StrCat("evaluates adapters (enable_lora=True), but there are none in ",
                                train.checkpoint_directory,
                                "; set run_name and base_output_directory as in the training, or "
                                "lora_restore_path"));
    return reader.status();
  }
  if (!train.load_parameters_path.empty()) {
    if (has_folder)
      warnings.push_back(absl::StrCat("load_parameters_path=", train.load_parameters_path,
                                      " is evaluated, and not the checkpoints in ",
                                      train.checkpoint_directory,
                                      ", which are evaluated without this key"));
    return reader.status();
  }
  reader.require(reader.is_set_by_user("run_name"), kEvalOnly,
                 "names no checkpoint; set run_name and base_output_directory as in the training, "
                 "or load_parameters_path=CHECKPOINT");
  train.load_parameters_path = train.checkpoint_directory;
  // Checkpoints with adapters are read as their base with the adapters merged.
  if (has_own_adapters) train.model.lora = {};
  return reader.status();
}

}  // namespace muster::jobspec
