// One job's resolved training config as the trainer reads it: plain values without defaults.
// `jobspec` builds it from base.yml, the model's preset and the command line; it travels as JSON,
// and the checkpoint keeps a copy. Fields have MaxText's meaning unless their comment states
// otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json_fwd.hpp>

#include "common/mesh.h"
#include "trainer_core/base/dtype.h"
#include "trainer_core/base/model_config.h"
#include "trainer_core/base/named_values.h"
#include "trainer_core/base/remat.h"

namespace muster::trainer {

constexpr int32_t kThreadsMax = 1024;  // cores of the largest machines

// Each choice has its values and their names in configs (opt_type, lr_schedule_type,
// wsd_decay_style), in the same order.
enum class OptimizerType { kAdamW, kAdamPax, kSgd, kAdafactor };  // optim/optimizer.h
constexpr ValueNames<4> kOptimizerNames = {"adamw", "adam_pax", "sgd", "adafactor"};
// See optim/schedule.h for the formulas.
enum class ScheduleType { kCosine, kConstant, kWsd, kRampupCosine, kRampupExponential };
constexpr ValueNames<5> kScheduleNames = {"cosine", "constant", "wsd", "linear_rampup_cosine_decay",
                                          "linear_rampup_exponential_decay"};
enum class DecayStyle { kLinear, kCosine };
constexpr ValueNames<2> kDecayStyleNames = {"linear", "cosine"};

// `dtype`: the type of activations, their gradients and GEMM operands. `weight_dtype`: the type of
// stored parameters. `mu_dtype`: the type of Adam's first moment. Parameters' gradients, other
// state, logits and losses are always float32.
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

struct OptimizerConfig {
  OptimizerType type = OptimizerType::kAdamW;
  ScheduleType schedule = ScheduleType::kCosine;
  double learning_rate = 3e-5;  // the schedule's highest
  double final_fraction = 0.1;  // a decay ends at learning_rate * final_fraction
  int64_t schedule_steps = 0;   // learning_rate_schedule_steps, -1 resolved to `steps`
  int64_t warmup_steps = 0;     // from 0 to learning_rate
  int64_t decay_start = 0;      // kWsd and Pax's schedules: the last step with learning_rate
  int64_t decay_end = 0;        // same schedules: the first step after the decay
  DecayStyle wsd_decay_style = DecayStyle::kLinear;
  double b1 = 0.9;
  double b2 = 0.95;
  double eps = 1e-8;
  double eps_root = 0;
  double weight_decay = 0.1;  // for the Adams
  // If false, the schedule's factor multiplies the decay but the learning rate does not (AXLearn).
  bool decay_times_learning_rate = true;
  std::vector<std::string> adamw_mask;  // kAdamW: patterns of parameters' names without decay
  ComputeType mu_dtype = ComputeType::kFloat32;  // the Adams' first moment
  // Rounds mu to bfloat16 stochastically, so that the mean is exact.
  bool mu_stochastic_rounding = false;
  double update_clip = 0;           // adam_clip_threshold of kAdamPax: RMS of an update; 0: off
  double clipping_threshold = 1.0;  // global L2 norm; 0: no clipping

  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};

enum class NotFinitePolicy { kAbort, kSkip, kRollback };  // not_finite_policy.h
constexpr ValueNames<3> kNotFinitePolicyNames = {"abort", "skip", "rollback"};
enum class DatasetType { kSynthetic, kShards };
// kAuto: a GPU if the build can use one that exists, otherwise the CPU; the trainer resolves it
// (choose_backend.h).
enum class Hardware { kCpu, kGpu, kAuto };
constexpr ValueNames<3> kHardwareNames = {"cpu", "gpu", "auto"};

// The evaluations during training (MaxText's eval_… keys).
struct EvalConfig {
  int64_t interval = -1;              // steps between evaluations; below 1: none
  int64_t start_step = 0;             // no evaluation before so many steps are completed
  int64_t steps = -1;                 // batches of an evaluation; -1: all of the data
  int32_t per_device_batch_size = 1;  // sequences of a rank and batch
  double target_loss = 0;             // training ends when an evaluation's loss is not above it
  std::string dataset_path;           // folder of shards, absolute; empty: what is held out
  // Fraction of the training data, in complete documents, that is evaluated and never trained on.
  double holdout_fraction = 0;

  bool enabled() const { return interval >= 1; }

  friend bool operator==(const EvalConfig&, const EvalConfig&) = default;
};

enum class Profiler { kNone, kNsys };
constexpr ValueNames<2> kProfilerNames = {"", "nsys"};

// The steps that a profiler records (profile_window.h).
struct ProfileConfig {
  Profiler profiler = Profiler::kNone;
  int64_t skip_first_steps = 1;  // skip_first_n_steps_for_profiler, of those that a process makes
  int64_t steps = 5;             // profiler_steps
  bool all_ranks = false;        // upload_all_profiler_results; else rank 0

  friend bool operator==(const ProfileConfig&, const ProfileConfig&) = default;
};

struct TrainConfig {
  std::string run_name;
  ModelConfig model;
  OptimizerConfig optimizer;
  Hardware hardware = Hardware::kCpu;
  bool cuda_graphs = true;  // on a GPU layers are started as one (Transformer::replay)
  ComputeType dtype = ComputeType::kFloat32;
  ComputeType weight_dtype = ComputeType::kFloat32;
  MatmulPrecision matmul_precision = MatmulPrecision::kDefault;
  RematPolicy remat_policy = RematPolicy::kFull;
  CustomRemat custom_remat{};  // the placements of kCustom; else the defaults
  MeshShape mesh;              // fully resolved: no -1
  int32_t zero_stage = 3;      // sharding among fsdp ranks: model/block_memory.h

  int64_t steps = 0;
  int64_t log_period = 100;  // without effect: each step has its line and is flushed
  // Sequences per accumulation step of the ranks that compute one slice of the batch together: the
  // key's value, which may be a fraction, times all ranks, divided by the number of slices.
  int32_t per_device_batch_size = 1;
  int32_t gradient_accumulation_steps = 1;
  // Pipeline settings; 1 each without a pipeline. Layer runs per stage (num_pipeline_repeats), and
  // micro-batches into which per_device_batch_size is split (num_pipeline_microbatches). All
  // accumulation steps pass through the pipeline as one.
  int32_t pipeline_repeats = 1;
  int32_t pipeline_microbatches = 1;
  int32_t max_target_length = 0;  // S, tokens
  uint64_t init_weights_seed = 0;
  uint64_t data_shuffle_seed = 0;

  NotFinitePolicy not_finite_policy = NotFinitePolicy::kAbort;

  DatasetType dataset_type = DatasetType::kSynthetic;
  std::string dataset_path;  // folders of shards, absolute, as base/data_paths.h has them
  bool packing = true;       // documents share a sequence; false: one each (data/samples.h)
  int64_t num_epoch = -1;    // training ends after so many; -1: after `steps` alone
  bool enable_data_shuffling = true;
  bool reuse_example_batch = false;  // the first step's batch at every step
  EvalConfig eval;
  std::string tokenizer_path;  // absolute; may be empty
  // The required tokenizer format: sentencepiece, huggingface or tiktoken; empty: any of them.
  std::string tokenizer_type;

  bool enable_checkpointing = true;
  std::string checkpoint_directory;  // absolute
  bool async_checkpointing = true;   // written in the background
  int64_t checkpoint_period = 10'000;
  int64_t max_checkpoints_to_keep = -1;  // -1: all
  bool save_checkpoint_on_completion = true;
  int64_t checkpoint_file_bytes = int64_t{2} << 30;  // bytes of tensor data per checkpoint file
  // Copies in the memory of the ranks' nodes (local_checkpoints.h), in addition to checkpoints.
  bool enable_emergency_checkpoint = false;
  std::string local_checkpoint_directory;  // absolute; empty: the worker's folder, or /dev/shm
  int64_t local_checkpoint_period = 0;     // steps
  // Allows resuming from a checkpoint of another data order (data_order.h).
  bool resume_with_other_data = false;
  // Absolute path of the initial parameters of a run without a checkpoint (ParameterSource::open);
  // empty: initialise from init_weights_seed.
  std::string load_parameters_path;

  ProfileConfig profile;

  std::string metrics_file;     // JSON lines, absolute; empty: none
  std::string tensorboard_dir;  // for event files, absolute; empty: none
  int32_t threads = 0;          // per rank; 0: see threads_per_rank()

  // Returns whether metrics are written, which requires values that cost time: the norm of the
  // parameters.
  bool writes_metrics() const { return !metrics_file.empty() || !tensorboard_dir.empty(); }

  LayerPlacements layer_placements() const {
    return trainer::layer_placements(remat_policy, custom_remat);
  }

  // Micro-batches of a step, and the sequences of one; a pass processes one micro-batch.
  int32_t micro_batches() const { return gradient_accumulation_steps * pipeline_microbatches; }
  int32_t micro_batch_sequences() const { return per_device_batch_size / pipeline_microbatches; }

  // Returns whether a sequence may hold several documents, which do not attend to each other.
  bool packed() const { return dataset_type == DatasetType::kShards && packing; }

  DType activation_type() const { return type_of(dtype); }
  DType weight_type() const { return type_of(weight_dtype); }
  // Whether a GPU rounds the operands of fp32 GEMMs to TF32.
  bool allows_tf32() const { return matmul_precision != MatmulPrecision::kHighest; }

  friend bool operator==(const TrainConfig&, const TrainConfig&) = default;
};

// Checks everything that needs no files: positive sizes, heads that divide, an even head_dim, a
// mesh that this trainer supports, and a step's plan that 64 bits can count. InvalidArgument names
// the keys as a user types them.
absl::Status validate(const TrainConfig& config);

nlohmann::json to_json(const TrainConfig& config);
nlohmann::json to_json(const ModelConfig& model);  // only the keys that define the model
// InvalidArgument names the field that is missing, unknown, or of the wrong type; the result is
// validated.
absl::StatusOr<TrainConfig> train_config_from_json(const nlohmann::json& json);

}  // namespace muster::trainer
