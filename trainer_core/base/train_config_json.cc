// Encodes TrainConfig as one flat JSON object with MaxText's keys.
#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "trainer_core/base/config_enum_names.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {
namespace {

using Json = nlohmann::json;

// A dense model has only the first of these keys.
template <class Config, class Visitor>
void visit_experts(Config& experts, Visitor& visit) {
  visit("num_experts", experts.count);
  if (experts.count <= 1) return;
  visit("num_experts_per_tok", experts.per_token);
  visit("base_moe_mlp_dim", experts.mlp_dim);
  visit("interleave_moe_layer_step", experts.layer_step);
  visit("first_moe_layer", experts.first_layer);
  visit("expert_activation", experts.activation);
  visit("gated_experts", experts.gated);
  visit("router_style", experts.router);
  visit("capacity_factor", experts.capacity_factor);
  visit("load_balance_loss_weight", experts.balance_weight);
  visit("num_groups", experts.num_groups);
}

// The type is visited first, so a reader already has it.
template <class Config, class Visitor>
void visit_quantization(Config& quantization, Visitor& visit) {
  visit("quantization", quantization.type);
  if (quantization.type == QuantizationType::kFp8Delayed)
    visit("fp8_amax_history_length", quantization.amax_history_length);
  if (quantization.type != QuantizationType::kInt8) return;
  visit("int8_weight_gradients", quantization.int8_weight_gradients);
  visit("stochastic_rounding", quantization.stochastic_rounding);
}

// The config of a run that trains all parameters has none of these keys.
template <class Config, class Visitor>
void visit_lora(Config& lora, Visitor& visit) {
  visit.unless("lora_rank", lora.rank, 0);
  if (lora.rank == 0) return;
  visit("lora_alpha", lora.alpha);
  visit("lora_dropout", lora.dropout);
  visit("lora_targets", lora.targets);
  visit.unless("lora_weight_qtype", lora.weight_type, WeightType::kPlain);
}

// The only list of keys: calls visit(key, field) for every field of the config.
template <class Config, class Visitor>
void visit_model(Config& model, Visitor& visit) {
  visit("model_name", model.name);
  visit("vocab_size", model.vocab_size);
  visit("base_emb_dim", model.emb_dim);
  visit("base_num_decoder_layers", model.num_layers);
  visit("base_num_query_heads", model.num_query_heads);
  visit("base_num_kv_heads", model.num_kv_heads);
  visit("head_dim", model.head_dim);
  visit("base_mlp_dim", model.mlp_dim);
  visit("norm_type", model.norm_type);
  visit("normalization_layer_epsilon", model.norm_epsilon);
  visit("norm_gain_offset", model.norm_gain_offset);
  visit("parallel_block", model.parallel_block);
  visit("position_type", model.position_type);
  visit("rope_max_timescale", model.rope_max_timescale);
  visit("rope_scaling_factor", model.rope_scaling.factor);
  visit("rope_low_frequency_factor", model.rope_scaling.low_frequency_factor);
  visit("rope_high_frequency_factor", model.rope_scaling.high_frequency_factor);
  visit("rope_original_max_position", model.rope_scaling.original_max_position);
  visit("trainable_position_size", model.trainable_position_size);
  if (model.position_type == PositionType::kRelative) {
    visit("relative_position_buckets", model.relative_buckets.count);
    visit("relative_position_max_distance", model.relative_buckets.max_distance);
  }
  visit("activation", model.activation);
  visit("gated_mlp", model.gated_mlp);
  visit("qkv_bias", model.qkv_bias);
  visit("out_bias", model.out_bias);
  visit("mlp_bias", model.mlp_bias);
  visit("logits_via_embedding", model.logits_via_embedding);
  visit("scale_embeddings", model.scale_embeddings);
  visit("logits_scale", model.logits_scale);
  visit("query_scale", model.query_scale);
  visit("attention_extra_zero", model.attention_extra_zero);
  visit("attn_logits_soft_cap", model.attn_logits_soft_cap);
  visit("final_logits_soft_cap", model.final_logits_soft_cap);
  visit("sliding_window_size", model.sliding_window_size);
  visit("z_loss_multiplier", model.z_loss_multiplier);
  visit_experts(model.experts, visit);
  visit("dropout_rate", model.dropout_rate);
  visit("input_dropout_rate", model.input_dropout_rate);
  visit("init_std", model.init_std);
  visit("embedding_init_std", model.embedding_init_std);
  visit_quantization(model.quantization, visit);
  visit_lora(model.lora, visit);
}

template <class Config, class Visitor>
void visit_optimizer(Config& optimizer, Visitor& visit) {
  visit("opt_type", optimizer.type);
  visit("lr_schedule_type", optimizer.schedule);
  visit("learning_rate", optimizer.learning_rate);
  visit("learning_rate_final_fraction", optimizer.final_fraction);
  visit("learning_rate_schedule_steps", optimizer.schedule_steps);
  visit("learning_rate_warmup_steps", optimizer.warmup_steps);
  visit("learning_rate_decay_start", optimizer.decay_start);
  visit("learning_rate_decay_end", optimizer.decay_end);
  visit("wsd_decay_style", optimizer.wsd_decay_style);
  visit("adam_b1", optimizer.b1);
  visit("adam_b2", optimizer.b2);
  visit("adam_eps", optimizer.eps);
  visit("adam_eps_root", optimizer.eps_root);
  visit("adam_weight_decay", optimizer.weight_decay);
  visit("weight_decay_times_learning_rate", optimizer.decay_times_learning_rate);
  visit("adamw_mask", optimizer.adamw_mask);
  visit.unless("mu_dtype", optimizer.mu_dtype, ComputeType::kFloat32);
  visit.unless("mu_stochastic_rounding", optimizer.mu_stochastic_rounding, false);
  visit("adam_clip_threshold", optimizer.update_clip);
  visit("gradient_clipping_threshold", optimizer.clipping_threshold);
}

template <class Config, class Visitor>
void visit_mesh(Config& mesh, Visitor& visit) {
  for (size_t i = 0; i < kMeshAxisCount; ++i) {
    visit(mesh_key("ici", static_cast<MeshAxis>(i)), mesh.ici[i]);
    visit(mesh_key("dcn", static_cast<MeshAxis>(i)), mesh.dcn[i]);
  }
}

// The policy is visited first, so a reader already has it.
template <class Config, class Visitor>
void visit_remat(Config& config, Visitor& visit) {
  visit("remat_policy", config.remat_policy);
  if (config.remat_policy != RematPolicy::kCustom) return;
  for (const CustomRematKey& key : kCustomRematKeys)
    visit(key.name, config.custom_remat.*key.field);
}

template <class Config, class Visitor>
void visit_eval(Config& eval, Visitor& visit) {
  visit("eval_interval", eval.interval);
  visit.unless("eval_at_end", eval.at_end, false);
  visit("eval_start_step", eval.start_step);
  visit("eval_steps", eval.steps);
  visit("eval_per_device_batch_size", eval.per_device_batch_size);
  visit("target_eval_loss", eval.target_loss);
  visit("eval_dataset_path", eval.dataset_path);
  visit("eval_holdout_fraction", eval.holdout_fraction);
  visit.unless("eval_tasks", eval.tasks, std::string());
  visit.unless("eval_output", eval.output, std::string());
  visit.unless("eval_truncate", eval.truncate_contexts, false);
  visit.unless("eval_bos_id", eval.bos_id, -1);
  visit.unless("eval_add_bos", eval.add_bos, false);
  visit.unless("metric_for_best_model", eval.best_metric, std::string("loss"));
  visit.unless("early_stopping_patience", eval.early_stopping_patience, int64_t{0});
  visit.unless("keep_best_checkpoint", eval.keep_best_checkpoint, false);
}

// The config of a run that is not profiled has none of these keys.
template <class Config, class Visitor>
void visit_profile(Config& profile, Visitor& visit) {
  visit.unless("profiler", profile.profiler, Profiler::kNone);
  if (profile.profiler == Profiler::kNone) return;
  visit("skip_first_n_steps_for_profiler", profile.skip_first_steps);
  visit("profiler_steps", profile.steps);
  visit("upload_all_profiler_results", profile.all_ranks);
}

// A run with the default reaction to spikes has none of these keys.
template <class Config, class Visitor>
void visit_spikes(Config& spikes, Visitor& visit) {
  visit.unless("skip_step_on_spikes", spikes.skip_step, false);
  visit.unless("skip_step_interval", spikes.interval, int64_t{128});
  visit.unless("skip_step_scaling_factor", spikes.scaling_factor, 6.0);
  visit.unless("rollback_after_spikes", spikes.rollback_after, 0);
}

template <class Config, class Visitor>
void visit_sft(Config& sft, Visitor& visit) {
  visit.unless("use_sft", sft.enabled, false);
  if (!sft.enabled) return;
  visit("sft_train_on_completion_only", sft.completion_only);
  visit("sft_long_samples", sft.long_samples);
  visit("sft_loss_average", sft.loss_average);
}

template <class Config, class Visitor>
void visit_dpo(Config& dpo, Visitor& visit) {
  visit.unless("use_dpo", dpo.enabled, false);
  if (!dpo.enabled) return;
  visit("dpo_loss_type", dpo.loss);
  visit("dpo_beta", dpo.beta);
  visit("dpo_label_smoothing", dpo.label_smoothing);
}

template <class Config, class Visitor>
void visit_fields(Config& config, Visitor& visit) {
  visit("run_name", config.run_name);
  visit_model(config.model, visit);
  visit_optimizer(config.optimizer, visit);
  visit("hardware", config.hardware);
  visit.unless("cuda_graphs", config.cuda_graphs, true);
  visit("dtype", config.dtype);
  visit.unless("weight_dtype", config.weight_dtype, ComputeType::kFloat32);
  visit.unless("matmul_precision", config.matmul_precision, MatmulPrecision::kDefault);
  visit_remat(config, visit);
  visit_mesh(config.mesh, visit);
  visit("zero_stage", config.zero_stage);
  visit("steps", config.steps);
  visit("log_period", config.log_period);
  visit("per_device_batch_size", config.per_device_batch_size);
  visit("gradient_accumulation_steps", config.gradient_accumulation_steps);
  visit("num_pipeline_repeats", config.pipeline_repeats);
  visit("num_pipeline_microbatches", config.pipeline_microbatches);
  visit("max_target_length", config.max_target_length);
  visit("init_weights_seed", config.init_weights_seed);
  visit("data_shuffle_seed", config.data_shuffle_seed);
  visit("not_finite_policy", config.not_finite_policy);
  visit_spikes(config.spikes, visit);
  visit.unless("max_rollbacks", config.max_rollbacks, 4);
  visit("dataset_type", config.dataset_type);
  visit("dataset_path", config.dataset_path);
  visit("packing", config.packing);
  visit_sft(config.sft, visit);
  visit_dpo(config.dpo, visit);
  visit("num_epoch", config.num_epoch);
  visit("enable_data_shuffling", config.enable_data_shuffling);
  visit("reuse_example_batch", config.reuse_example_batch);
  visit_eval(config.eval, visit);
  visit("tokenizer_path", config.tokenizer_path);
  visit("tokenizer_type", config.tokenizer_type);
  visit.unless("sample_begin_id", config.sample_begin_id, -1);
  visit("enable_checkpointing", config.enable_checkpointing);
  visit("checkpoint_directory", config.checkpoint_directory);
  visit("async_checkpointing", config.async_checkpointing);
  visit("checkpoint_period", config.checkpoint_period);
  visit("max_num_checkpoints_to_keep", config.max_checkpoints_to_keep);
  visit("save_checkpoint_on_completion", config.save_checkpoint_on_completion);
  visit("checkpoint_storage_target_data_file_size_bytes", config.checkpoint_file_bytes);
  visit("load_parameters_path", config.load_parameters_path);
  visit.unless("lora_restore_path", config.lora_restore_path, std::string());
  visit.unless("enable_emergency_checkpoint", config.enable_emergency_checkpoint, false);
  visit.unless("local_checkpoint_directory", config.local_checkpoint_directory, std::string());
  visit.unless("local_checkpoint_period", config.local_checkpoint_period, int64_t{0});
  visit.unless("resume_with_other_data", config.resume_with_other_data, false);
  visit_profile(config.profile, visit);
  visit("metrics_file", config.metrics_file);
  visit.unless("tensorboard_dir", config.tensorboard_dir, std::string());
  visit("threads", config.threads);
  visit.unless("compiled_trainstep_file", config.compiled_trainstep_file, std::string());
  visit.unless("planned_step_seconds", config.planned_step_seconds, 0.0);
  visit.unless("planned_communication_seconds", config.planned_communication_seconds, 0.0);
  visit.unless("planned_data_seconds", config.planned_data_seconds, 0.0);
  visit.unless("planned_checkpoint_seconds", config.planned_checkpoint_seconds, 0.0);
}

struct Writer {
  Json json = Json::object();

  template <class Value>
  void operator()(std::string_view key, const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      json[std::string(key)] = EnumNames<Value>::kNames[static_cast<size_t>(value)];
    } else {
      json[std::string(key)] = value;
    }
  }
  // A missing key means `usual`, so that configs in checkpoints that are older than the key remain
  // valid.
  template <class Value>
  void unless(std::string_view key, const Value& value, const Value& usual) {
    if (value != usual) (*this)(key, value);
  }
};

// Reads every field that it visits and stores the first error.
struct Reader {
  const Json& json;
  std::vector<std::string> seen;
  absl::Status status;

  template <class Value>
  void operator()(std::string_view key, Value& value) {
    seen.emplace_back(key);
    if (!status.ok()) return;
    const auto found = json.find(seen.back());
    if (found == json.end()) {
      status = absl::InvalidArgumentError(absl::StrCat("train config: ", av(key), " is missing"));
      return;
    }
    read(key, *found, value);
  }
  template <class Value>
  void unless(std::string_view key, Value& value, const Value& /*usual*/) {
    if (json.contains(std::string(key))) (*this)(key, value);
  }

  void fail(std::string_view key, const Json& json_value, std::string_view allowed) {
    status = absl::InvalidArgumentError(
        absl::StrCat("train config: ", av(key), " is ",
                     json_value.dump(-1, ' ', false, Json::error_handler_t::replace),
                     ", but must be ", av(allowed)));
  }

  void read(std::string_view key, const Json& from, std::string& value) {
    if (!from.is_string()) return fail(key, from, "a string");
    value = from.get<std::string>();
  }
  void read(std::string_view key, const Json& from, std::vector<std::string>& value) {
    const bool words =
        from.is_array() &&
        std::all_of(from.begin(), from.end(), [](const Json& word) { return word.is_string(); });
    if (!words) return fail(key, from, "a list of strings");
    value = from.get<std::vector<std::string>>();
  }
  void read(std::string_view key, const Json& from, bool& value) {
    if (!from.is_boolean()) return fail(key, from, "true or false");
    value = from.get<bool>();
  }
  void read(std::string_view key, const Json& from, double& value) {
    if (!from.is_number()) return fail(key, from, "a number");
    value = from.get<double>();
  }
  void read(std::string_view key, const Json& from, uint64_t& value) {
    if (!from.is_number_unsigned()) return fail(key, from, "a non-negative integer");
    value = from.get<uint64_t>();
  }
  template <class Integer>
  requires std::is_same_v<Integer, int32_t> || std::is_same_v<Integer, int64_t>
  void read(std::string_view key, const Json& from, Integer& value) {
    constexpr auto kMax = std::numeric_limits<Integer>::max();
    constexpr auto kMin = std::numeric_limits<Integer>::min();
    const bool fits = from.is_number_unsigned()
                          ? from.get<uint64_t>() <= static_cast<uint64_t>(kMax)
                          : from.is_number_integer() && from.get<int64_t>() >= kMin &&
                                from.get<int64_t>() <= kMax;
    if (!fits) return fail(key, from, absl::StrCat("an integer of ", sizeof(Integer) * 8, " bits"));
    value = from.get<Integer>();
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void read(std::string_view key, const Json& from, Enum& value) {
    std::string names;
    for (size_t i = 0; i < std::size(EnumNames<Enum>::kNames); ++i) {
      const std::string_view name = EnumNames<Enum>::kNames[i];
      if (from.is_string() && from.get_ref<const std::string&>() == name) {
        value = static_cast<Enum>(i);
        return;
      }
      absl::StrAppend(&names, i == 0 ? "" : " or ", "\"", av(name), "\"");
    }
    fail(key, from, names);
  }
};

}  // namespace

nlohmann::json to_json(const ModelConfig& model) {
  Writer writer;
  visit_model(model, writer);
  return writer.json;
}

nlohmann::json to_json(const TrainConfig& config) {
  Writer writer;
  visit_fields(config, writer);
  return writer.json;
}

absl::StatusOr<TrainConfig> train_config_from_json(const nlohmann::json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("train config: not a JSON object");
  TrainConfig config;
  Reader reader{.json = json, .seen = {}, .status = {}};
  visit_fields(config, reader);
  if (!reader.status.ok()) return reader.status;
  for (const auto& item : json.items()) {
    if (std::ranges::count(reader.seen, item.key()) == 0)
      return absl::InvalidArgumentError(absl::StrCat("train config: unknown key ", item.key()));
  }
  if (absl::Status status = validate(config); !status.ok()) return status;
  return config;
}

}  // namespace muster::trainer
