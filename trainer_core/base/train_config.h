// The resolved training config of a job, as the trainer reads it: all defaults are applied.
// `jobspec` builds it from base.yml, the model's preset and the command line. The trainer receives
// it as JSON, and each checkpoint contains a copy. Fields have the meaning of MaxText's keys unless
// their comment states otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "common/job/mesh.h"
#include "trainer_core/base/dtype.h"
#include "trainer_core/base/model_config.h"
#include "trainer_core/base/named_values.h"
#include "trainer_core/base/remat.h"

namespace muster::trainer {

constexpr int32_t kThreadsMax = 1024;  // above the cores of the largest machines

// Each enum below is followed by its values' names in configs, in the same order. The keys of the
// first three are opt_type, lr_schedule_type and wsd_decay_style.
enum class OptimizerType { kAdamW, kAdamPax, kSgd, kAdafactor };  // optim/optimizer.h
constexpr ValueNames<4> kOptimizerNames = {"adamw", "adam_pax", "sgd", "adafactor"};
// optim/schedule.h has the formulas.
enum class ScheduleType { kCosine, kConstant, kWsd, kRampupCosine, kRampupExponential };
constexpr ValueNames<5> kScheduleNames = {"cosine", "constant", "wsd", "linear_rampup_cosine_decay",
                                          "linear_rampup_exponential_decay"};
enum class DecayStyle { kLinear, kCosine };
constexpr ValueNames<2> kDecayStyleNames = {"linear", "cosine"};

// The values of three keys. `dtype` is the type of activations, their gradients and GEMM operands.
// `weight_dtype` is the type of stored parameters. `mu_dtype` is the type of Adam's first moment.
// Gradients of parameters, other optimizer state, logits and losses are always float32.
enum class ComputeType { kFloat32, kBfloat16 };
constexpr ValueNames<2> kComputeTypeNames = {"float32", "bfloat16"};
constexpr DType type_of(ComputeType type) {
  return type == ComputeType::kBfloat16 ? DType::kBf16 : DType::kF32;
}

// `matmul_precision`: jax.lax.Precision, which selects how a GPU's tensor cores compute GEMMs of
// fp32. kDefault and kHigh: operands are rounded to TF32 (10 bits of mantissa), sums are fp32;
// kHighest: fp32. CPUs compute in fp32.
enum class MatmulPrecision { kDefault, kHigh, kHighest };
constexpr ValueNames<3> kMatmulPrecisionNames = {"default", "high", "highest"};

// The optimizer, its schedule and their settings.
struct OptimizerConfig {
  OptimizerType type = OptimizerType::kAdamW;
  ScheduleType schedule = ScheduleType::kCosine;
  double learning_rate = 3e-5;  // the highest of the schedule
  double final_fraction = 0.1;  // a decay ends at learning_rate * final_fraction
  int64_t schedule_steps = 0;   // learning_rate_schedule_steps, -1 resolved to `steps`
  int64_t warmup_steps = 0;     // the first steps, in which the rate rises from 0 to learning_rate
  // kWsd, kRampupCosine, kRampupExponential: last step with learning_rate.
  int64_t decay_start = 0;
  int64_t decay_end = 0;  // the same schedules: first step after the decay
  DecayStyle wsd_decay_style = DecayStyle::kLinear;
  double b1 = 0.9;
  double b2 = 0.95;
  double eps = 1e-8;
  double eps_root = 0;        // added to the second moment before its square root
  double weight_decay = 0.1;  // kAdamW and kAdamPax
  // If true, the decay of a step is multiplied by its learning rate. If false, it is multiplied by
  // the schedule's factor alone, as in AXLearn.
  bool decay_times_learning_rate = true;
  std::vector<std::string> adamw_mask;  // kAdamW: patterns of the names of parameters without decay
  ComputeType mu_dtype = ComputeType::kFloat32;  // type of the first moment of Adam
  // Rounds the first moment (mu) to bfloat16 stochastically, so that its expected value is exact.
  bool mu_stochastic_rounding = false;
  // adam_clip_threshold of kAdamPax: maximum RMS of an update; 0: off.
  double update_clip = 0;
  double clipping_threshold = 1.0;  // maximum global L2 norm of the gradients; 0: no clipping

  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};

enum class NotFinitePolicy { kAbort, kSkip, kRollback };  // recovery/step_guard.h
constexpr ValueNames<3> kNotFinitePolicyNames = {"abort", "skip", "rollback"};

// The reaction to spikes of the loss and of the gradient norm (recovery/step_guard.h).
struct SpikeConfig {
  bool skip_step = false;      // skip_step_on_spikes
  int64_t interval = 128;      // skip_step_interval: steps
  double scaling_factor = 6;   // skip_step_scaling_factor: standard deviations
  int32_t rollback_after = 0;  // rollback_after_spikes: steps in a row; 0: never

  // Returns whether spikes are detected.
  bool detects() const { return skip_step || rollback_after > 0; }

  friend bool operator==(const SpikeConfig&, const SpikeConfig&) = default;
};

// The training data: MaxText's synthetic data, or token shards.
enum class DatasetType { kSynthetic, kShards };
// A sample for fine-tuning that is longer than a sequence is truncated or left out.
enum class LongSamples { kTruncate, kDrop };
constexpr ValueNames<2> kLongSamplesNames = {"truncate", "drop"};
// The loss of fine-tuning is the mean over the completions' tokens, or over the samples' means.
enum class LossAverage { kTokens, kSamples };
constexpr ValueNames<2> kLossAverageNames = {"tokens", "samples"};

// Supervised fine-tuning (data/sft_samples.h).
struct SftConfig {
  bool enabled = false;         // use_sft: the documents of the data are samples
  bool completion_only = true;  // sft_train_on_completion_only
  LongSamples long_samples = LongSamples::kTruncate;
  LossAverage loss_average = LossAverage::kTokens;

  friend bool operator==(const SftConfig&, const SftConfig&) = default;
};

// The loss of preference tuning (loop/dpo_loss.h).
enum class DpoLoss { kSigmoid, kHinge, kIpo };
constexpr ValueNames<3> kDpoLossNames = {"sigmoid", "hinge", "ipo"};

// Direct preference optimization (data/dpo_samples.h).
struct DpoConfig {
  bool enabled = false;              // use_dpo: the documents of the data are pairs of answers
  DpoLoss loss = DpoLoss::kSigmoid;  // dpo_loss_type
  double beta = 0.1;                 // dpo_beta
  double label_smoothing = 0;        // dpo_label_smoothing, kSigmoid only

  friend bool operator==(const DpoConfig&, const DpoConfig&) = default;
};

// The hardware of ranks. kAuto: a GPU if the machine has one that this build supports, otherwise
// the CPU; the trainer decides (choose_backend.h).
enum class Hardware { kCpu, kGpu, kAuto };
constexpr ValueNames<3> kHardwareNames = {"cpu", "gpu", "auto"};

// The evaluations during training (MaxText's eval_… keys).
struct EvalConfig {
  int64_t interval = -1;              // steps between evaluations; below 1: none during training
  bool at_end = false;                // one evaluation after the last step, without an interval
  int64_t start_step = 0;             // completed steps before the first evaluation
  int64_t steps = -1;                 // batches per evaluation; -1: all evaluation data
  int32_t per_device_batch_size = 1;  // sequences per rank and batch
  double target_loss = 0;             // training ends once an evaluation's loss is at most this
  std::string dataset_path;           // absolute folder of shards; empty: the held-out documents
  // Fraction of the training data, in complete documents, that is held out for evaluation and never
  // trained on.
  double holdout_fraction = 0;
  std::string tasks;               // tasks and their files (eval_task_files.h); empty: none
  std::string output;              // absolute folder of the tasks' results; empty: not written
  bool truncate_contexts = false;  // long contexts lose their beginning; false: an error
  int32_t bos_id = -1;   // the token before texts of tasks without context; -1: data/text_start.h
  bool add_bos = false;  // whether this token also begins texts that have a context

  // metric_for_best_model: "loss", or a task and its metric, as "lambada/acc" (eval_task_files.h).
  std::string best_metric = "loss";
  // Evaluations in a row without an improvement of best_metric after which training ends; 0: no
  // limit.
  int64_t early_stopping_patience = 0;
  bool keep_best_checkpoint = false;  // each evaluation that improves best_metric saves

  bool has_data() const { return !dataset_path.empty() || holdout_fraction > 0; }
  bool enabled() const { return interval >= 1 || at_end; }
  // Returns whether the best evaluation is recorded (checkpoint/eval_progress.h).
  bool tracks_best() const { return early_stopping_patience > 0 || keep_best_checkpoint; }

  friend bool operator==(const EvalConfig&, const EvalConfig&) = default;
};

enum class Profiler { kNone, kNsys };
constexpr ValueNames<2> kProfilerNames = {"", "nsys"};

// The steps that a profiler records (profile_window.h).
struct ProfileConfig {
  Profiler profiler = Profiler::kNone;
  // skip_first_n_steps_for_profiler, counted from the process's first.
  int64_t skip_first_steps = 1;
  int64_t steps = 5;       // profiler_steps
  bool all_ranks = false;  // upload_all_profiler_results; false: rank 0 only

  friend bool operator==(const ProfileConfig&, const ProfileConfig&) = default;
};

// All settings of a training job that reach the trainer.
struct TrainConfig {
  std::string run_name;
  ModelConfig model;
  OptimizerConfig optimizer;
  Hardware hardware = Hardware::kCpu;
  bool cuda_graphs = true;  // on a GPU, a layer's kernels start as one graph (Transformer::replay)
  ComputeType dtype = ComputeType::kFloat32;
  ComputeType weight_dtype = ComputeType::kFloat32;
  MatmulPrecision matmul_precision = MatmulPrecision::kDefault;
  RematPolicy remat_policy = RematPolicy::kFull;
  CustomRemat custom_remat{};  // used with RematPolicy::kCustom only
  MeshShape mesh;              // fully resolved: no -1
  int32_t zero_stage = 3;      // 0 to 3: what fsdp ranks shard, see model/block_memory.h

  int64_t steps = 0;         // 0: see only_evaluates()
  int64_t log_period = 100;  // no effect: every step has a line and is flushed to event files
  // Sequences per accumulation step of one slice of the global batch (train_mesh.h). Differs from
  // the key of the same name, which is per rank and may be a fraction: it is the key's value times
  // all ranks, divided by the number of slices.
  int32_t per_device_batch_size = 1;
  int32_t gradient_accumulation_steps = 1;
  // Pipeline settings; both are 1 without a pipeline. pipeline_repeats is the number of layer runs
  // per stage (num_pipeline_repeats). pipeline_microbatches is the number of micro-batches into
  // which per_device_batch_size is split (num_pipeline_microbatches). The micro-batches of all
  // accumulation steps of a step pass through the pipeline as one sequence.
  int32_t pipeline_repeats = 1;
  int32_t pipeline_microbatches = 1;
  int32_t max_target_length = 0;  // S: tokens per sequence
  uint64_t init_weights_seed = 0;
  uint64_t data_shuffle_seed = 0;

  NotFinitePolicy not_finite_policy = NotFinitePolicy::kAbort;
  SpikeConfig spikes;
  int32_t max_rollbacks = 4;  // to one checkpoint

  DatasetType dataset_type = DatasetType::kSynthetic;
  std::string dataset_path;  // absolute folders of shards, in the syntax of data_paths.h
  bool packing = true;       // documents share sequences; false: one per sequence (data/samples.h)
  SftConfig sft;
  DpoConfig dpo;
  int64_t num_epoch = -1;  // maximum number of epochs; -1: only `steps` ends the training
  bool enable_data_shuffling = true;
  bool reuse_example_batch = false;  // every step trains on the batch of the first
  EvalConfig eval;
  std::string tokenizer_path;  // absolute path; empty: none
  // The required tokenizer format: sentencepiece, huggingface or tiktoken; empty: any of them.
  std::string tokenizer_type;
  // The token with which the samples of the data begin; -1: none. Only in stored configs.
  int32_t sample_begin_id = -1;

  bool enable_checkpointing = true;
  std::string checkpoint_directory;      // absolute
  bool async_checkpointing = true;       // checkpoints are written in the background
  int64_t checkpoint_period = 10'000;    // steps
  int64_t max_checkpoints_to_keep = -1;  // -1: all
  bool save_checkpoint_on_completion = true;
  int64_t checkpoint_file_bytes = int64_t{2} << 30;  // bytes of tensor data per checkpoint file
  // If true, the nodes' memory has copies of the state (local_checkpoints.h), in addition to
  // checkpoints.
  bool enable_emergency_checkpoint = false;
  std::string local_checkpoint_directory;  // absolute; empty: the worker's folder, or /dev/shm
  int64_t local_checkpoint_period = 0;     // steps
  // Allows a run to resume from a checkpoint that was written with another data order
  // (data_order.h).
  bool resume_with_other_data = false;
  // Absolute path of initial parameters for a run that has no checkpoint yet
  // (ParameterSource::open); empty: they are initialised from init_weights_seed.
  std::string load_parameters_path;
  // Absolute path of the adapters with which a run with lora_rank begins (open_adapters); empty:
  // they are initialised from init_weights_seed.
  std::string lora_restore_path;

  ProfileConfig profile;

  std::string metrics_file;     // absolute path for JSON lines; empty: none
  std::string tensorboard_dir;  // absolute path for event files; empty: none
  int32_t threads = 0;          // per rank; 0: see threads_per_rank()
  // Absolute path of the saved plan that the run must match (saved_plan.h); empty: none.
  std::string compiled_trainstep_file;
  // The step time that `muster plan` predicts for the devices of the job, the parts of it in which
  // the computation waits for communication and for data, and the stalls for checkpoints per step
  // beside it, in seconds; 0: unknown.
  double planned_step_seconds = 0;
  double planned_communication_seconds = 0;
  double planned_data_seconds = 0;
  double planned_checkpoint_seconds = 0;

  // Returns whether the run evaluates load_parameters_path once, and trains nothing.
  bool only_evaluates() const { return steps == 0 && eval.enabled(); }

  // Returns whether metrics are written to files. Only then does the trainer compute the norm of
  // the parameters, which takes time.
  bool writes_metrics() const { return !metrics_file.empty() || !tensorboard_dir.empty(); }

  // Returns the placements of a layer's tensors under remat_policy.
  LayerPlacements layer_placements() const {
    return trainer::layer_placements(remat_policy, custom_remat);
  }

  // Micro-batches per step of a slice of the batch, and sequences per micro-batch. A forward and
  // backward pass processes one micro-batch.
  int32_t micro_batches() const { return gradient_accumulation_steps * pipeline_microbatches; }
  int32_t micro_batch_sequences() const { return per_device_batch_size / pipeline_microbatches; }

  // Returns whether a sequence may hold several documents, which do not attend to each other, as
  // both answers of a pair. An evaluation without training packs the texts of its tasks.
  bool packed() const {
    const bool has_texts = only_evaluates() && !eval.tasks.empty();
    return (packing || dpo.enabled) && (dataset_type == DatasetType::kShards || has_texts);
  }

  // Returns the element type of activations.
  DType activation_type() const { return type_of(dtype); }
  // Returns the element type of stored parameters that are trained. It is weight_dtype; adapters,
  // which are small and whose updates are smaller than what bf16 can add to them, are fp32,
  // whatever weight_dtype is.
  DType weight_type() const { return model.lora.enabled() ? DType::kF32 : type_of(weight_dtype); }
  // Returns the element type of frozen parameters: bf16 unless nothing is computed or stored in it.
  DType frozen_type() const {
    return dtype == ComputeType::kBfloat16 ? DType::kBf16 : type_of(weight_dtype);
  }
  // Returns whether a GPU rounds the operands of fp32 GEMMs to TF32.
  bool allows_tf32() const { return matmul_precision != MatmulPrecision::kHighest; }

  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

// Checks everything that needs no files: sizes are positive, head counts divide each other,
// head_dim is even with RoPE, the trainer supports the mesh, and the bytes of a step can be counted
// in 64 bits. Returns InvalidArgument with the keys as a user types them.
absl::Status validate(const TrainConfig& config);

// Encode a config, or only its model's fields, as JSON.
nlohmann::json to_json(const TrainConfig& config);
nlohmann::json to_json(const ModelConfig& model);  // only the model's fields
// Parses and validates a config. Returns InvalidArgument with the field that is missing, unknown,
// of the wrong type or invalid.
absl::StatusOr<TrainConfig> train_config_from_json(const nlohmann::json& json);

// The value of tokenizer_type: "tiktoken:o200k_base" names the encoding, too.
struct TokenizerKind {
  std::string type;
  std::string encoding;
};
inline TokenizerKind tokenizer_kind(const std::string& tokenizer_type) {
  const size_t colon = tokenizer_type.find(':');
  if (colon == std::string::npos) return {tokenizer_type, ""};
  return {tokenizer_type.substr(0, colon), tokenizer_type.substr(colon + 1)};
}

}  // namespace muster::trainer
