#include "jobspec/dialects/flag_table.h"

namespace muster::jobspec {
namespace {

constexpr std::string_view kRanks =
    "--ranks, or --nodes and --ranks-per-node, set the number of ranks";
constexpr std::string_view kRendezvous = "ranks meet through the worker's rendezvous store";
constexpr std::string_view kOwnSplit =
    "evaluations read eval_dataset_path, eval_holdout_fraction or the validation split";
constexpr std::string_view kNoProfilerPort =
    "no profiler listens on a port; profiler=nsys records a GPU's steps";
constexpr std::string_view kOwnWatch = "the coordinator detects hangs itself, see docs/hangs.md";
constexpr std::string_view kNotNeeded = "nothing here needs it";
constexpr std::string_view kOwnPages = "the daemons serve their own pages and metrics";

constexpr Flag key(std::string_view name, std::string_view key, bool is_switch = false) {
  return {name, FlagEffect::kKey, key, "", is_switch};
}
constexpr Flag no_effect(std::string_view name, std::string_view note, bool is_switch = false) {
  return {name, FlagEffect::kNoEffect, "", note, is_switch};
}
constexpr Flag cosine(std::string_view name, std::string_view key) {
  return {name, FlagEffect::kPaxCosine, key, ""};
}
constexpr Flag exponential(std::string_view name, std::string_view key) {
  return {name, FlagEffect::kPaxExponential, key, ""};
}
constexpr Flag off(std::string_view name, std::string_view note) {
  return {name, FlagEffect::kOff, "", note};
}
constexpr Flag quiet(std::string_view name, bool is_switch = true) {
  return {name, FlagEffect::kQuiet, "", "", is_switch};
}
constexpr Flag special(std::string_view name, FlagEffect effect) { return {name, effect, "", ""}; }

constexpr Flag kPaxFlags[] = {
    special("fdl_config", FlagEffect::kPaxConfig),
    special("job_log_dir", FlagEffect::kDirectory),
    special("tfds_data_dir", FlagEffect::kPaxData),
    special("mode", FlagEffect::kPaxMode),
    key("enable_checkpoint_saving", "enable_checkpointing", true),
    no_effect("multiprocess_gpu", kRanks, true),
    no_effect("num_hosts", kRanks),
    no_effect("host_idx", kRanks),
    no_effect("server_addr", kRendezvous),
    key("jax_fully_async_checkpoint", "async_checkpointing", true),
    no_effect("maybe_use_persistence_checkpointing", "there is one kind of checkpoint", true),
    no_effect("eval_on_test", kOwnSplit, true),
    no_effect("enable_auto_sharding", "the sharding of each tensor is fixed", true),
    quiet("alsologtostderr"),
    quiet("logtostderr"),
    quiet("verbosity", false),
};

constexpr Flag kPaxParameters[] = {
    key("PERCORE_BATCH_SIZE", "per_device_batch_size"),
    special("ICI_MESH_SHAPE", FlagEffect::kPaxIciMesh),
    special("DCN_MESH_SHAPE", FlagEffect::kPaxDcnMesh),
    key("NUM_LAYERS", "base_num_decoder_layers"),
    key("NUM_HEADS", "base_num_query_heads"),
    key("NUM_KV_HEADS", "base_num_kv_heads"),
    key("DIMS_PER_HEAD", "head_dim"),
    key("MODEL_DIMS", "base_emb_dim"),
    key("HIDDEN_DIMS", "base_mlp_dim"),
    key("VOCAB_SIZE", "vocab_size"),
    key("LAYERNORM_EPSILON", "normalization_layer_epsilon"),
    key("INIT_STD", "init_std"),
    no_effect("SOFTMAX_INIT_STD", "INIT_STD also applies to the embeddings"),
    key("NUM_GROUPS", "num_groups"),
    key("MAX_SEQ_LEN", "max_target_length"),
    key("MAX_STEPS", "steps"),
    key("LEARNING_RATE", "learning_rate"),
    special("LR_SCHEDULE", FlagEffect::kPaxSchedule),
    cosine("LR_COS_WARMUP", "learning_rate_warmup_steps"),
    cosine("LR_COS_DECAY_START", "learning_rate_decay_start"),
    cosine("LR_COS_DECAY_END", "learning_rate_decay_end"),
    cosine("LR_COS_MIN_RATIO", "learning_rate_final_fraction"),
    special("LR_COS_MAX", FlagEffect::kPaxOne),
    exponential("LR_LRED_WARMUP", "learning_rate_warmup_steps"),
    exponential("LR_LRED_DECAY_START", "learning_rate_decay_start"),
    exponential("LR_LRED_DECAY_END", "learning_rate_decay_end"),
    exponential("LR_LRED_MIN_RATIO", "learning_rate_final_fraction"),
    special("LR_LRED_MAX", FlagEffect::kPaxOne),
    key("WEIGHT_DECAY", "adam_weight_decay"),
    key("ADAM_BETA1", "adam_b1"),
    key("ADAM_BETA2", "adam_b2"),
    key("ADAM_EPSILON", "adam_eps"),
    key("ADAM_EPSILON_ROOT", "adam_eps_root"),
    key("ADAM_CLIP_THRESHOLD", "adam_clip_threshold"),
    key("CLIP_GRADIENT_NORM_TO_VALUE", "gradient_clipping_threshold"),
    key("FPROP_DTYPE", "dtype"),
    key("MODEL_DTYPE", "weight_dtype"),
    special("USE_FP8", FlagEffect::kPaxFp8),
    key("PACKED_INPUT", "packing"),
    key("USE_REPEATED_LAYER", "scan_layers"),
    special("CHECKPOINT_POLICY", FlagEffect::kPaxRemat),
    key("CHECKPOINT_EVERY_N_STEPS", "checkpoint_period"),
    key("CHECKPOINT_MAX_TO_KEEP", "max_num_checkpoints_to_keep"),
    key("CHECKPOINT_RESTORE_PATH", "load_parameters_path"),
    key("EVAL_INTERVAL_STEPS", "eval_interval"),
    no_effect("SUMMARY_INTERVAL_STEPS",
              "each step has a line, and its scalars are written at once"),
    special("USE_LORA", FlagEffect::kPaxLora),
    key("LORA_RANK", "lora_rank"),
    key("LORA_TARGET_LAYERS", "lora_targets"),
};

constexpr Flag kPaxVariables[] = {
    special("CONFIG", FlagEffect::kPaxConfig),
    key("PREC", "dtype"),
    key("PERCORE_BATCH_SIZE", "per_device_batch_size"),
    special("LOG_DIR", FlagEffect::kPaxLogs),
    special("LOG_DIR_LOCAL", FlagEffect::kPaxLogs),
    special("TFDS_DATA_DIR", FlagEffect::kPaxData),
    special("BASE_TFDS_DATA_DIR", FlagEffect::kPaxData),
    key("VOCAB_PATH", "tokenizer_path"),
    key("BASE_VOCAB_PATH", "tokenizer_path"),
    key("CHECKPOINT_RESTORE_PATH", "load_parameters_path"),
    key("BASE_CHECKPOINT_RESTORE_PATH", "load_parameters_path"),
    no_effect("NUM_GPUS", kRanks),
    no_effect("GPUS_PER_NODE", kRanks),
    no_effect("ENABLE_TE",
              "there is no Transformer Engine here; attention is always blocked flash"),
    special("ENABLE_FP8", FlagEffect::kPaxFp8),
    special("USE_LORA", FlagEffect::kPaxLora),
    key("LORA_RANK", "lora_rank"),
    key("LORA_TARGET_LAYERS", "lora_targets"),
    special("EVAL_ONLY", FlagEffect::kPaxEvalOnly),
    no_effect("CONTAINER", kNotNeeded),
    special("BASE_WORKSPACE_DIR", FlagEffect::kPaxWorkspace),
    no_effect("OUTPUT_DIR", "ranks' output is in the job's logs"),
    no_effect("BASE_XLA_FLAGS", "there is no XLA here"),
};

constexpr Flag kAxlearnFlags[] = {
    special("module", FlagEffect::kModule),
    special("config", FlagEffect::kAxlearnConfig),
    special("trainer_dir", FlagEffect::kDirectory),
    special("data_dir", FlagEffect::kAxlearnData),
    key("jax_backend", "hardware"),
    key("trainer_prng_seed", "init_weights_seed"),
    key("trainer_log_every_n_steps", "log_period"),
    special("mesh_selector", FlagEffect::kAxlearnMesh),
    no_effect("trainer_watchdog_timeout_seconds", kOwnWatch),
    no_effect("trainer_crash_on_hang_timeout_seconds", kOwnWatch),
    no_effect("trace_at_steps", kNoProfilerPort),
    no_effect("eval_trace_at_iters", kNoProfilerPort),
    no_effect("jax_profiler_port", kNoProfilerPort),
    no_effect("device_monitor", kOwnPages),
    no_effect("status_port", kOwnPages),
    no_effect("distributed_coordinator", kRendezvous),
    no_effect("initialization_timeout", kRendezvous),
    no_effect("num_processes", kRanks),
    no_effect("process_id", kRanks),
    quiet("alsologtostderr"),
    quiet("logtostderr"),
    quiet("verbosity", false),
};

}  // namespace

std::span<const Flag> pax_flags() { return kPaxFlags; }
std::span<const Flag> pax_parameters() { return kPaxParameters; }
std::span<const Flag> pax_variables() { return kPaxVariables; }
std::span<const Flag> axlearn_flags() { return kAxlearnFlags; }

}  // namespace muster::jobspec
