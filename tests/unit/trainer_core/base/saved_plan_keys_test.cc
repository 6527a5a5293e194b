#include <gmock/gmock.h>

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/saved_plan_check.h"

namespace muster::trainer {
namespace {

TEST(SavedPlanKeys, ANewKeyIsPartOfItUnlessSomeoneDecidesOtherwise) {
  const std::vector<std::string> free = {"run_name",
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
                                         "dataset_type",
                                         "dataset_path",
                                         "packing",
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
                                         "init_weights_seed",
                                         "init_std",
                                         "embedding_init_std",
                                         "load_parameters_path",
                                         "lora_restore_path",
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
                                         "threads"};
  for (const std::string& key : free) EXPECT_TRUE(is_free_of_plan(key)) << key;
  TrainConfig config;
  config.model.experts.count = 4;  // adds keys
  config.model.quantization.type = QuantizationType::kInt8;
  config.model.lora = {.rank = 8, .alpha = 8, .dropout = 0, .targets = {"q_proj"}};
  config.lora_restore_path = "/adapters";
  config.compiled_trainstep_file = "/plan";
  config.planned_step_seconds = 1;
  std::vector<std::string> found;
  const nlohmann::json json = to_json(config);
  for (const auto& item : json.items())
    if (is_free_of_plan(item.key())) found.push_back(item.key());
  EXPECT_THAT(found, testing::IsSubsetOf(free));
  EXPECT_GT(json.size(), found.size() + 60);
}

}  // namespace
}  // namespace muster::trainer
