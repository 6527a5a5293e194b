#include "trainer_core/base/train_config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "trainer_core/base/checker.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/eval_task_files.h"
#include "trainer_core/base/expert_rules.h"
#include "trainer_core/base/name_patterns.h"
#include "trainer_core/base/size_rules.h"
#include "trainer_core/base/step_rules.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/tuning_rules.h"

namespace muster::trainer {
namespace {

// The maximum of a size, far above any published model. Products of two sizes fit in 64 bits;
// products of more sizes are computed in floating point (size_rules.h).
constexpr int64_t kSizeMax = int64_t{1} << 24;
constexpr int64_t kLayersMax = 4096;
constexpr int64_t kBucketsMax = 4096;  // T5 has 32
// The maximum number of experts. Every matrix of an expert is a row of the parameter table. The
// largest published models have 256 experts and some 60 thousand rows.
constexpr int64_t kExpertsMax = 4096;
constexpr double kExpertRowsMax = 1 << 20;
constexpr int64_t kStepsMax = int64_t{1} << 48;
// Smaller files would give folders with thousands of files.
constexpr int64_t kCheckpointFileBytesMin = int64_t{1} << 20;
constexpr int64_t kCheckpointFileBytesMax = int64_t{1} << 40;
// More accumulation steps would take days; the sequences of a step are counted in 32 bits.
constexpr int64_t kAccumulationMax = int64_t{1} << 20;
// The maximum tokens of a rank's micro-batch, because positions are counted in 32 bits.
constexpr int64_t kTokensMax = int64_t{1} << 30;

void check_relative_positions(const ModelConfig& model, Checker& check) {
  const RelativeBuckets& buckets = model.relative_buckets;
  if (model.position_type != PositionType::kRelative) {
    check.require(!buckets.exist(),
                  absl::StrCat("relative_position_buckets is ", buckets.count,
                               ", but position_type is not relative: it must be 0"));
    return;
  }
  check.range("relative_position_buckets", buckets.count, 2, kBucketsMax);
  check.range("relative_position_max_distance", buckets.max_distance, buckets.count / 2 + 1,
              kSizeMax);
}

void check_positions(const ModelConfig& model, Checker& check) {
  check.number("rope_max_timescale", model.rope_max_timescale, model.rope_max_timescale >= 1,
               "at least 1");
  const RopeScaling& scaling = model.rope_scaling;
  check.number("rope_scaling_factor", scaling.factor, scaling.factor >= 1, "at least 1 (1: none)");
  check.number("rope_low_frequency_factor", scaling.low_frequency_factor,
               scaling.low_frequency_factor > 0, "above 0");
  check.number("rope_high_frequency_factor", scaling.high_frequency_factor,
               scaling.high_frequency_factor > scaling.low_frequency_factor,
               "above rope_low_frequency_factor");
  check.range("rope_original_max_position", scaling.original_max_position, 1, kSizeMax);
  if (model.has_rope()) {
    check.require(
        model.head_dim % 2 == 0,
        absl::StrCat("head_dim is ", model.head_dim, ", but RoPE rotates pairs: it must be even"));
  }
  check.range("trainable_position_size", model.trainable_position_size,
              model.learns_positions() ? 1 : 0, kSizeMax);
  check_relative_positions(model, check);
  check.range("sliding_window_size", model.sliding_window_size, 0, kSizeMax);
}

void check_model(const ModelConfig& model, Checker& check) {
  check.range("vocab_size", model.vocab_size, 2, kSizeMax);
  check.range("base_emb_dim", model.emb_dim, 1, kSizeMax);
  check.range("base_num_decoder_layers", model.num_layers, 1, kLayersMax);
  check.range("base_num_query_heads", model.num_query_heads, 1, kSizeMax);
  check.range("base_num_kv_heads", model.num_kv_heads, 1, kSizeMax);
  check.range("head_dim", model.head_dim, 1, kSizeMax);
  check.range("base_mlp_dim", model.mlp_dim, 1, kSizeMax);
  check.require(model.num_kv_heads < 1 || model.num_query_heads % model.num_kv_heads == 0,
                absl::StrCat("base_num_kv_heads (", model.num_kv_heads,
                             ") must divide base_num_query_heads (", model.num_query_heads, ")"));
  check_positions(model, check);
  const auto not_negative = [&](std::string_view key, double value) {
    check.number(key, value, value >= 0, "at least 0 (0: none)");
  };
  check.number("normalization_layer_epsilon", model.norm_epsilon, model.norm_epsilon > 0,
               "above 0");
  check.number("norm_gain_offset", model.norm_gain_offset,
               model.norm_gain_offset == 0 || model.norm_gain_offset == 1, "0 or 1");
  check.number("logits_scale", model.logits_scale, model.logits_scale > 0, "above 0");
  check.number("query_scale", model.query_scale, model.query_scale >= 0,
               "at least 0 (0: 1 / sqrt(head_dim))");
  check.number("init_std", model.init_std, model.init_std >= 0, "at least 0 (0: 1 / sqrt(fan_in))");
  check.number("embedding_init_std", model.embedding_init_std, model.embedding_init_std >= 0,
               "at least 0 (0: as init_std)");
  for (const auto& [key, rate] : {std::pair("dropout_rate", model.dropout_rate),
                                  std::pair("input_dropout_rate", model.input_dropout_rate)})
    check.number(key, rate, rate >= 0 && rate < 1, "in [0, 1) (0: none)");
  not_negative("attn_logits_soft_cap", model.attn_logits_soft_cap);
  not_negative("final_logits_soft_cap", model.final_logits_soft_cap);
  not_negative("z_loss_multiplier", model.z_loss_multiplier);
}

void check_experts(const ModelConfig& model, Checker& check) {
  const ExpertConfig& experts = model.experts;
  check.range("num_experts", experts.count, 1, kExpertsMax);
  if (experts.count <= 1) return;
  check.require(experts.per_token >= 1 && experts.per_token <= experts.count,
                absl::StrCat("num_experts_per_tok is ", experts.per_token,
                             ", but must be between 1 and num_experts (", experts.count, ")"));
  check.range("base_moe_mlp_dim", experts.mlp_dim, 1, kSizeMax);
  check.range("interleave_moe_layer_step", experts.layer_step, 1, kLayersMax);
  check.range("first_moe_layer", experts.first_layer, 0, kLayersMax);
  check.require(experts.first_layer < model.num_layers,
                absl::StrCat("first_moe_layer is ", experts.first_layer, ", but the model has ",
                             model.num_layers, " layers: none would have experts"));
  check.number("capacity_factor", experts.capacity_factor, true,
               "a number (0 or less: no token is dropped)");
  check.number("load_balance_loss_weight", experts.balance_weight, experts.balance_weight >= 0,
               "at least 0 (0: none)");
  check.range("num_groups", experts.num_groups, 0, kSizeMax);
  check.require(experts.num_groups == 0 || experts.router == RouterStyle::kPax,
                absl::StrCat("num_groups is ", experts.num_groups,
                             ", but router_style is maxtext, whose groups are sequences"));
  const double rows = 3.0 * experts.count * model.num_layers / std::max(1, experts.layer_step);
  check.require(
      rows <= kExpertRowsMax,
      absl::StrCat("num_experts is ", experts.count, " in layers of ", model.num_layers, ": some ",
                   rows, " matrices, but there may be at most ", kExpertRowsMax));
  check.require(!model.mlp_bias, "experts have no biases, but this model's MLPs do");
  check.require(!model.parallel_block,
                absl::StrCat("num_experts is ", experts.count,
                             ", but decoder_block is default, which has one MLP in each layer: use "
                             "decoder_block=mixtral"));
}

void check_quantization(const ModelConfig& model, Checker& check) {
  const QuantizationConfig& quantization = model.quantization;
  if (!quantization.enabled()) return;
  check.range("fp8_amax_history_length", quantization.amax_history_length, 1, kAmaxHistoryMax);
  check.require(model.experts.count <= 1,
                absl::StrCat("quantization is ", av(name_of(kQuantizationNames, quantization.type)),
                             " and num_experts ", model.experts.count,
                             ": this version does not quantize experts; set quantization=\"\""));
}

bool has_decay_start(ScheduleType schedule) {
  return schedule == ScheduleType::kWsd || schedule == ScheduleType::kRampupCosine ||
         schedule == ScheduleType::kRampupExponential;
}

void check_schedule(const OptimizerConfig& optimizer, Checker& check) {
  check.number("learning_rate", optimizer.learning_rate, optimizer.learning_rate >= 0,
               "at least 0");
  check.number("learning_rate_final_fraction", optimizer.final_fraction,
               optimizer.final_fraction >= 0 && optimizer.final_fraction <= 1, "between 0 and 1");
  check.require(
      optimizer.schedule != ScheduleType::kRampupExponential || optimizer.final_fraction > 0,
      "learning_rate_final_fraction is 0, but an exponential decay does not reach 0: it must be "
      "above 0");
  check.range("learning_rate_schedule_steps", optimizer.schedule_steps, 1, kStepsMax);
  check.range("learning_rate_warmup_steps", optimizer.warmup_steps, 0, kStepsMax);
  if (!has_decay_start(optimizer.schedule)) return;
  check.require(optimizer.decay_start >= optimizer.warmup_steps,
                absl::StrCat("learning_rate_decay_start is ", optimizer.decay_start,
                             ", but must be at least learning_rate_warmup_steps (",
                             optimizer.warmup_steps, "): the decay follows the warm-up"));
  check.require(optimizer.decay_end >= optimizer.decay_start && optimizer.decay_end <= kStepsMax,
                absl::StrCat("learning_rate_decay_end is ", optimizer.decay_end,
                             ", but must be at least learning_rate_decay_start (",
                             optimizer.decay_start, ") and at most ", kStepsMax));
}

void check_optimizer(const OptimizerConfig& optimizer, Checker& check) {
  check.number("adam_b1", optimizer.b1, optimizer.b1 >= 0 && optimizer.b1 < 1, "in [0, 1)");
  check.number("adam_b2", optimizer.b2, optimizer.b2 >= 0 && optimizer.b2 < 1, "in [0, 1)");
  check.number("adam_eps", optimizer.eps, optimizer.eps > 0, "above 0");
  check.number("adam_eps_root", optimizer.eps_root, optimizer.eps_root >= 0, "at least 0");
  check.number("adam_weight_decay", optimizer.weight_decay, optimizer.weight_decay >= 0,
               "at least 0");
  const bool is_adam =
      optimizer.type == OptimizerType::kAdamW || optimizer.type == OptimizerType::kAdamPax;
  check.require(
      !is_adam || optimizer.decay_times_learning_rate || optimizer.learning_rate > 0 ||
          optimizer.weight_decay == 0,
      absl::StrCat(
          "learning_rate is ", optimizer.learning_rate,
          ", but weight_decay_times_learning_rate is false: a decay of adam_weight_decay (",
          optimizer.weight_decay,
          ") times the schedule's share of the rate needs one "
          "above 0; set adam_weight_decay=0 to decay nothing"));
  if (const auto mask = NamePatterns::compile(optimizer.adamw_mask); !mask.ok())
    check.require(false, absl::StrCat("adamw_mask: ", mask.status().message()));
  check.number("adam_clip_threshold", optimizer.update_clip, true, "a number (0 or less: off)");
  check.number("gradient_clipping_threshold", optimizer.clipping_threshold,
               optimizer.clipping_threshold >= 0, "at least 0 (0: no clipping)");
}

void check_data(const TrainConfig& config, Checker& check) {
  const bool shards = config.dataset_type == DatasetType::kShards;
  check.require(!shards || !config.dataset_path.empty(),
                "dataset_path is empty, but dataset_type=shards needs the folder of shards");
  const auto paths = parse_data_paths(config.dataset_path);
  if (!paths.ok()) {
    check.require(false, absl::StrCat("dataset_path: ", paths.status().message()));
    return;
  }
  check.require(config.num_epoch == -1 || config.num_epoch >= 1,
                absl::StrCat("num_epoch is ", config.num_epoch,
                             ", but must be at least 1, or -1 (as many as `steps` takes)"));
  check.range("num_epoch", config.num_epoch, -1, kStepsMax);
  check.require(config.num_epoch == -1 || (shards && paths->size() == 1),
                absl::StrCat("num_epoch is ", config.num_epoch, ", but ",
                             shards ? "several data sets end at different times"
                                    : "dataset_type=synthetic has no end",
                             "; set it to -1 and give steps"));
}

void check_eval(const TrainConfig& config, Checker& check) {
  const EvalConfig& eval = config.eval;
  check.number("eval_holdout_fraction", eval.holdout_fraction,
               eval.holdout_fraction >= 0 && eval.holdout_fraction < 1, "in [0, 1) (0: none)");
  check.require(!eval.has_data() || config.dataset_type == DatasetType::kShards,
                "eval_dataset_path and eval_holdout_fraction need dataset_type=shards");
  check.require(eval.dataset_path.empty() || eval.holdout_fraction == 0,
                "eval_dataset_path and eval_holdout_fraction are both set; give one of them");
  check.number("target_eval_loss", eval.target_loss, true, "a number (0: none)");
  if (!eval.enabled()) return;
  check.require(eval.has_data() || !eval.tasks.empty(),
                absl::StrCat("eval_interval is ", eval.interval,
                             ", but there is nothing to evaluate: set "
                             "eval_holdout_fraction, or eval_dataset_path to another "
                             "folder of shards, or eval_tasks, or eval_interval=-1"));
  if (const auto tasks = parse_eval_tasks(eval.tasks); !tasks.ok())
    check.require(false, std::string(tasks.status().message()));
  check.require(eval.tasks.empty() || !config.tokenizer_path.empty(),
                "eval_tasks needs tokenizer_path, because the tasks' files are text");
  check.range("eval_bos_id", eval.bos_id, -1, config.model.vocab_size - 1);
  if (!eval.at_end) check.range("eval_interval", eval.interval, 1, kStepsMax);
  check.range("eval_start_step", eval.start_step, 0, kStepsMax);
  check.require(eval.steps == -1 || (eval.steps >= 1 && eval.steps <= kStepsMax),
                absl::StrCat("eval_steps is ", eval.steps,
                             ", but must be at least 1, or -1 (all of the data)"));
  check.range("eval_per_device_batch_size", eval.per_device_batch_size, 1, kSizeMax);
}

void check_local_checkpoints(const TrainConfig& config, Checker& check) {
  check.require(config.local_checkpoint_directory.empty() ||
                    config.local_checkpoint_directory.starts_with('/'),
                absl::StrCat("local_checkpoint_directory is ", config.local_checkpoint_directory,
                             ", but must begin with /: each node has its own"));
  check.range("local_checkpoint_period", config.local_checkpoint_period, 0, kStepsMax);
  if (!config.enable_emergency_checkpoint) return;
  check.require(config.local_checkpoint_period > 0,
                "local_checkpoint_period is 0, but enable_emergency_checkpoint is true: it sets "
                "after how many steps the nodes keep a copy in their memory; set it to 1 or more");
  check.require(config.enable_checkpointing,
                "enable_emergency_checkpoint is true, but enable_checkpointing is false: copies in "
                "memory are for the steps since the newest checkpoint, and not in its place");
}

void check_profile(const TrainConfig& config, Checker& check) {
  const ProfileConfig& profile = config.profile;
  if (profile.profiler == Profiler::kNone) return;
  check.range("profiler_steps", profile.steps, 1, kStepsMax);
  check.range("skip_first_n_steps_for_profiler", profile.skip_first_steps, 0, kStepsMax);
  check.require(
      profile.skip_first_steps < config.steps,
      absl::StrCat("skip_first_n_steps_for_profiler is ", profile.skip_first_steps,
                   ", but the run has ", config.steps, " steps: nothing would be recorded"));
}

}  // namespace

int64_t ExpertConfig::capacity(int64_t group_tokens) const {
  if (capacity_factor <= 0) return 0;
  constexpr int64_t kPaxMultiple = 4;
  double rows = 0;
  if (router == RouterStyle::kPax) {
    rows = std::floor(static_cast<double>(group_tokens) * capacity_factor / count);
    rows = std::ceil(rows / kPaxMultiple) * kPaxMultiple;
  } else {
    rows = std::ceil(static_cast<double>(group_tokens) * per_token / count) * capacity_factor;
  }
  // An expert never accepts more rows than there are tokens, and is never closed.
  return static_cast<int64_t>(std::clamp(std::floor(rows), 1.0, static_cast<double>(group_tokens)));
}

absl::Status validate(const ModelConfig& model) {
  Checker check;
  check_model(model, check);
  check_experts(model, check);
  check_quantization(model, check);
  if (check.status().ok()) check.take(validate_lora(model));
  if (check.status().ok()) check.take(check_parameter_count(model));
  return check.status();
}

absl::Status validate(const TrainConfig& config) {
  Checker check;
  check.take(validate(config.model));
  // This check is the first, so that values of the schedule that are derived from `steps` are not
  // reported instead.
  check.range("steps", config.steps, config.eval.enabled() ? 0 : 1, kStepsMax);
  check_schedule(config.optimizer, check);
  check_optimizer(config.optimizer, check);
  check.take(validate_mesh(config.mesh));
  check.range("zero_stage", config.zero_stage, 1, 3);
  check.range("log_period", config.log_period, 1, kStepsMax);
  check.range("per_device_batch_size", config.per_device_batch_size, 1, kSizeMax);
  check.range("gradient_accumulation_steps", config.gradient_accumulation_steps, 1,
              kAccumulationMax);
  check.range("num_pipeline_repeats", config.pipeline_repeats, 1, kSizeMax);
  check.range("num_pipeline_microbatches", config.pipeline_microbatches, 1, kSizeMax);
  check.require(config.per_device_batch_size % std::max(config.pipeline_microbatches, 1) == 0,
                absl::StrCat("num_pipeline_microbatches is ", config.pipeline_microbatches,
                             ", but must divide the ", config.per_device_batch_size,
                             " sequences of per_device_batch_size"));
  const int64_t sequences =
      int64_t{config.per_device_batch_size} * config.gradient_accumulation_steps;
  check.require(
      sequences <= kSizeMax,
      absl::StrCat("per_device_batch_size (", config.per_device_batch_size,
                   ") times gradient_accumulation_steps (", config.gradient_accumulation_steps,
                   ") is ", sequences, " sequences, but must be at most ", kSizeMax));
  check.range("max_target_length", config.max_target_length, 1, kSizeMax);
  const int64_t tokens = int64_t{config.per_device_batch_size} * config.max_target_length;
  check.require(tokens <= kTokensMax,
                absl::StrCat("per_device_batch_size (", config.per_device_batch_size,
                             ") times max_target_length (", config.max_target_length, ") is ",
                             tokens, " tokens, but must be at most ", kTokensMax));
  check.require(
      !config.model.learns_positions() ||
          config.max_target_length <= config.model.trainable_position_size,
      absl::StrCat("max_target_length is ", config.max_target_length,
                   ", but the model has learned positions for ",
                   config.model.trainable_position_size, " tokens (trainable_position_size)"));
  if (check.status().ok()) check.take(check_activation_count(config));
  if (check.status().ok()) check.take(validate_on_mesh(config));
  if (check.status().ok()) check.take(validate_experts(config));
  check_data(config, check);
  check_eval(config, check);
  check.take(validate_tuning(config));
  check.require(!config.enable_checkpointing || !config.only_evaluates(),
                "steps is 0, but enable_checkpointing is true: an evaluation reads "
                "load_parameters_path and saves nothing");
  check.require(!config.enable_checkpointing || !config.checkpoint_directory.empty(),
                "checkpoint_directory is empty, but enable_checkpointing is true");
  check.take(validate_step_rules(config));
  check.range("checkpoint_period", config.checkpoint_period, 1, kStepsMax);
  check.range("checkpoint_storage_target_data_file_size_bytes", config.checkpoint_file_bytes,
              kCheckpointFileBytesMin, kCheckpointFileBytesMax);
  check.require(config.max_checkpoints_to_keep == -1 || config.max_checkpoints_to_keep >= 1,
                absl::StrCat("max_num_checkpoints_to_keep is ", config.max_checkpoints_to_keep,
                             ", but must be -1 (all) or at least 1"));
  check_local_checkpoints(config, check);
  check_profile(config, check);
  check.range("threads_per_rank", config.threads, 0, kThreadsMax);
  if (config.remat_policy == RematPolicy::kCustom) check.take(validate(config.custom_remat));
  return check.status();
}

}  // namespace muster::trainer
