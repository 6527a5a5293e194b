#include "jobspec/resolve.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/job/gpu.h"
#include "common/job/limits.h"
#include "common/objects/object_url.h"
#include "common/text/absl_view.h"
#include "jobspec/changed_job.h"
#include "jobspec/job_paths.h"
#include "jobspec/keys/data_keys.h"
#include "jobspec/keys/lora_keys.h"
#include "jobspec/keys/model_keys.h"
#include "jobspec/keys/optimizer_keys.h"
#include "jobspec/keys/quantization_keys.h"
#include "jobspec/keys/recovery_keys.h"
#include "jobspec/keys/remat_keys.h"
#include "jobspec/keys/stack_trace_keys.h"
#include "jobspec/keys/step_keys.h"
#include "jobspec/mesh/mesh_keys.h"
#include "jobspec/mesh/pax_mesh.h"
#include "jobspec/mesh/pipeline_keys.h"
#include "jobspec/precision_keys.h"
#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/mesh_rules.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

// A selection that fits into one sentence.
constexpr size_t kNearMeshes = 3;

absl::Status check_run_name(const Config& config, std::string_view name) {
  bool fits = !name.empty() && name.size() <= kNameBytesMax && name.front() != '.';
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    fits = fits && (absl::ascii_isalnum(u) || c == '.' || c == '_' || c == '-');
  }
  if (fits) return absl::OkStatus();
  const Setting* setting = find_setting(config.settings, "run_name");
  return absl::InvalidArgumentError(absl::StrCat(
      "run_name=", show(std::string(name)), setting == nullptr ? "" : shown_origin(*setting),
      ": a name has 1 to ", kNameBytesMax,
      " letters, digits, '.', '_' or '-', and does not begin with '.'"));
}

// `muster decode` reads these keys from the config; an error here is reported before hours of
// training.
void check_sampling(SettingsReader& reader) {
  std::string strategy = "greedy";
  int64_t top_k = 0;
  double top_p = -1, temperature = 1;
  reader.read("decode_sampling_strategy", strategy);
  reader.read("decode_sampling_top_k", top_k);
  reader.read("decode_sampling_nucleus_p", top_p);
  reader.read("decode_sampling_temperature", temperature);
  reader.require(strategy.empty() || strategy == "greedy" || strategy == "weighted" ||
                     strategy == "topk" || strategy == "nucleus",
                 "decode_sampling_strategy", "expected greedy, weighted, topk or nucleus");
  reader.require(top_k >= 0, "decode_sampling_top_k", "must be at least 0 (0: all)");
  reader.require(top_p == -1 || (top_p >= 0 && top_p <= 1), "decode_sampling_nucleus_p",
                 "must be between 0 and 1, or -1");
  reader.require(temperature >= 0 && temperature <= 100, "decode_sampling_temperature",
                 "must be between 0 and 100");
}

// Every layer's exchange along tensor (trainer_core/parallel/mesh_exchange.h) would go between
// nodes.
void warn_of_tensor_between_nodes(const trainer::TrainConfig& train,
                                  std::vector<std::string>& warnings) {
  const int32_t nodes = train.mesh.dcn[static_cast<size_t>(MeshAxis::kTensor)];
  if (nodes == 1) return;
  const auto degree = [&](MeshAxis axis) {
    const auto i = static_cast<size_t>(axis);
    return train.mesh.ici[i] * train.mesh.dcn[i];
  };
  const int32_t tensor = degree(MeshAxis::kTensor);
  const double rows = double{1} * train.per_device_batch_size * train.max_target_length /
                      degree(MeshAxis::kSequence) / degree(MeshAxis::kContext);
  const double exchange = rows * train.model.emb_dim * (tensor - 1) / tensor *
                          static_cast<double>(trainer::dtype_bytes(train.activation_type()));
  const int32_t pipeline = trainer::mesh_of(train.mesh).degree(MeshAxis::kPipeline);
  const double step =
      exchange * (10.0 * train.model.num_layers / pipeline + 4) * train.gradient_accumulation_steps;
  warnings.push_back(absl::StrFormat(
      "dcn_tensor_parallelism=%d: a rank exchanges at least %.1f MiB a step with other nodes' "
      "ranks while it waits; ici_tensor_parallelism keeps that inside a node",
      nodes, step / (1 << 20)));
}

void read_local_checkpoints(SettingsReader& reader, trainer::TrainConfig& train,
                            std::vector<std::string>& warnings) {
  reader.read("enable_emergency_checkpoint", train.enable_emergency_checkpoint);
  reader.read("local_checkpoint_directory", train.local_checkpoint_directory);
  reader.read("local_checkpoint_period", train.local_checkpoint_period);
  if (train.enable_emergency_checkpoint || train.local_checkpoint_period <= 0) return;
  warnings.push_back(absl::StrCat("local_checkpoint_period=", train.local_checkpoint_period,
                                  " has no effect: enable_emergency_checkpoint is False"));
}

void read_profile(SettingsReader& reader, trainer::ProfileConfig& profile,
                  std::vector<std::string>& warnings) {
  reader.read_choice("profiler", trainer::kProfilerNames, profile.profiler);
  if (profile.profiler == trainer::Profiler::kNone) {
    for (const std::string_view key :
         {"skip_first_n_steps_for_profiler", "profiler_steps", "upload_all_profiler_results"}) {
      if (reader.is_set_by_user(key))
        warnings.push_back(absl::StrCat(av(key), " has no effect: profiler is not set"));
    }
    return;
  }
  reader.read("skip_first_n_steps_for_profiler", profile.skip_first_steps);
  reader.read("profiler_steps", profile.steps);
  reader.read("upload_all_profiler_results", profile.all_ranks);
}

absl::Status read_rest(SettingsReader& reader, trainer::TrainConfig& train,
                       std::vector<std::string>& warnings) {
  reader.read("log_period", train.log_period);
  reader.read("init_weights_seed", train.init_weights_seed);
  reader.read("enable_checkpointing", train.enable_checkpointing);
  reader.read("async_checkpointing", train.async_checkpointing);
  reader.read("checkpoint_period", train.checkpoint_period);
  reader.read_optional("max_num_checkpoints_to_keep", train.max_checkpoints_to_keep);
  reader.read("save_checkpoint_on_completion", train.save_checkpoint_on_completion);
  reader.read("checkpoint_storage_target_data_file_size_bytes", train.checkpoint_file_bytes);
  read_local_checkpoints(reader, train, warnings);
  read_profile(reader, train.profile, warnings);
  reader.read("threads_per_rank", train.threads);
  check_sampling(reader);
  return reader.status();
}

// A rank with hardware=auto uses the GPUs of its slot, and the CPU if there are none. A worker
// with a slot for each rank of this job, and no other job, shares its GPUs among the ranks even if
// there are fewer GPUs than ranks.
int32_t gpus_for(trainer::Hardware hardware, bool own_workers) {
  switch (hardware) {
    case trainer::Hardware::kCpu:
      return 0;
    case trainer::Hardware::kGpu:
      return own_workers ? kGpusOfSlot : 1;
    case trainer::Hardware::kAuto:
      return kGpusOfSlot;
  }
  return 0;
}

// Returns the number of consecutive nodes that the axes with the most communication span. These are
// the innermost axes, so their ranks are consecutive.
int32_t segment_of(const MeshShape& shape) {
  int32_t nodes = 1;
  for (const MeshAxis axis :
       {MeshAxis::kSequence, MeshAxis::kContext, MeshAxis::kExpert, MeshAxis::kTensor})
    nodes *= shape.dcn[static_cast<size_t>(axis)];
  return nodes;
}

void fill_spec(const LaunchOptions& options, const Mesh& mesh, const ResolvedJob& job,
               std::string output_directory, v1::JobSpec& spec) {
  spec.set_name(job.train.run_name);
  spec.set_user(options.user);
  spec.set_priority(options.priority);
  spec.set_nodes(mesh.nodes());
  spec.set_ranks_per_node(mesh.ranks_per_node());
  if (const int32_t segment = segment_of(mesh.shape()); segment > 1)
    spec.set_segment_nodes(segment);
  spec.set_gpus_per_rank(
      options.gpus_per_rank.value_or(gpus_for(job.train.hardware, options.own_workers)));
  spec.set_output_directory(std::move(output_directory));
  spec.set_steps(job.train.steps);
  spec.set_train_config_json(trainer::to_json(job.train).dump());
  for (const auto& [name, value] : options.environment) {
    (*spec.mutable_environment())[name] = value;
  }
}

// Keeps the first of equal sentences: a variable may be exported and on the line.
void remove_repeated(std::vector<std::string>& warnings) {
  std::set<std::string> seen;
  std::erase_if(warnings, [&](const std::string& text) { return !seen.insert(text).second; });
}

// Rejects a user's file that inherits from no other.
absl::Status check_root(const Config& config) {
  for (const char* key :
       {"vocab_size", "base_emb_dim", "base_num_decoder_layers", "base_num_query_heads",
        "base_num_kv_heads", "head_dim", "base_mlp_dim"}) {
    if (find_setting(config.settings, key) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        config.root, ": ", key,
        " is missing; begin your config with base_config: base.yml, which has all keys"));
  }
  return absl::OkStatus();
}

// Reads the settings that are independent of the mesh.
absl::Status read_anywhere(SettingsReader& reader, const Config& config,
                           const LaunchOptions& options, trainer::TrainConfig& train,
                           std::vector<std::string>& warnings) {
  reader.read("zero_stage", train.zero_stage);
  reader.read("run_name", train.run_name);
  if (train.run_name.empty()) train.run_name = options.default_run_name;
  if (auto status = check_run_name(config, train.run_name); !status.ok()) return status;
  if (auto status = read_model(reader, train.model, warnings); !status.ok()) return status;
  if (auto status = read_lora(reader, train.model, warnings); !status.ok()) return status;
  reader.read_choice("hardware", trainer::kHardwareNames, train.hardware);
  read_precision(reader, options, train, warnings);
  reader.read("cuda_graphs", train.cuda_graphs);
  if (auto status = read_quantization(reader, train.model.quantization, warnings); !status.ok())
    return status;
  if (auto status = read_remat(reader, train, warnings); !status.ok()) return status;
  read_optimizer(reader, train.optimizer, warnings);
  read_schedule(reader, train, warnings);
  read_step_rules(reader, train, warnings);
  return read_rest(reader, train, warnings);
}

// Reads the rest, and validates the combination. Returns the job's output folder.
absl::StatusOr<std::string> read_on_mesh(const Mesh& mesh, const Config& config,
                                         const LaunchOptions& options, trainer::TrainConfig& train,
                                         std::vector<std::string>& warnings) {
  SettingsReader reader(config.settings);
  train.mesh = mesh.shape();
  read_batch(reader, mesh, train);
  read_pipeline(reader, mesh, train);
  if (auto status = read_data(reader, options.working_directory, train, warnings); !status.ok())
    return status;
  absl::StatusOr<std::string> output = read_paths(reader, options, train);
  if (!output.ok()) return output.status();
  warn_of_same_batches(train, warnings);
  warn_of_tensor_between_nodes(train, warnings);
  train.checkpoint_directory = absl::StrCat(*output, "/checkpoints");
  bool tensorboard = false;
  reader.read("enable_tensorboard", tensorboard);
  if (tensorboard) train.tensorboard_dir = absl::StrCat(*output, "/tensorboard");
  if (auto status = set_evaluation_only(reader, train, warnings); !status.ok()) return status;
  if (auto status = trainer::validate(train); !status.ok()) return status;
  return output;
}

// Returns "; as many ranks would do with ici_fsdp_parallelism=4, or with …": the nearest meshes on
// which the job is valid. `train` has the settings that are independent of the mesh. Empty if there
// is none, because then the mesh is not the problem.
std::string meshes_that_work(const RequestedMesh& wanted, const Config& config,
                             const LaunchOptions& options, const trainer::TrainConfig& train) {
  const auto works = [&](const MeshShape& shape) {
    const auto mesh = Mesh::resolve(shape, wanted.nodes, wanted.ranks_per_node);
    trainer::TrainConfig there = train;
    std::vector<std::string> warnings;
    return mesh.ok() && read_on_mesh(*mesh, config, options, there, warnings).ok();
  };
  std::string meshes;
  for (const MeshShape& near : trainer::nearest_meshes(wanted.nodes, wanted.ranks_per_node,
                                                       wanted.shape, kNearMeshes, works)) {
    const std::string keys = replacing_mesh(near, wanted.stated, config.settings);
    if (keys.empty()) continue;
    absl::StrAppend(&meshes, meshes.empty() ? "; as many ranks would do with " : ", or with ",
                    keys);
  }
  return meshes;
}

}  // namespace

absl::StatusOr<ResolvedJob> resolve_job(const Config& config, const LaunchOptions& options) {
  if (auto status = check_root(config); !status.ok()) return status;
  SettingsReader reader(config.settings);
  auto wanted = read_mesh(reader, options.nodes, options.ranks_per_node,
                          options.node_gpus / std::max(options.gpus_per_rank.value_or(1), 1));
  if (!wanted.ok()) return wanted.status();
  trainer::TrainConfig anywhere;
  std::vector<std::string> warnings = config.warnings;
  const auto recovery = read_recovery(reader, options.spares, options.min_nodes);
  if (!recovery.ok()) return recovery.status();
  v1::StackTraces traces;
  read_stack_traces(reader, traces, warnings);
  if (auto status = read_anywhere(reader, config, options, anywhere, warnings); !status.ok())
    return status;
  const auto mesh = Mesh::resolve(wanted->shape, wanted->nodes, wanted->ranks_per_node);
  absl::Status status = mesh.status();
  if (mesh.ok()) {
    wanted->shape = mesh->shape();
    ResolvedJob job(*mesh);
    job.train = anywhere;
    job.warnings = warnings;
    job.planned_topology = config.planned_topology;
    *job.spec.mutable_stack_traces() = traces;
    absl::StatusOr<std::string> output =
        read_on_mesh(*mesh, config, options, job.train, job.warnings);
    if (output.ok()) {
      job.texts = read_texts(reader, job.train);
      fill_spec(options, *mesh, job, *std::move(output), job.spec);
      job.spec.set_settings_json(settings_to_json(config, options.working_directory));
      *job.spec.mutable_stack_traces() = traces;
      if (auto fits = fill_recovery(job.train, *recovery, job.spec, job.warnings); !fits.ok())
        return fits;
      remove_repeated(job.warnings);
      return job;
    }
    status = output.status();
  }
  const std::string meshes = meshes_that_work(*wanted, config, options, anywhere);
  const bool is_about_pax_mesh = !meshes.empty() && is_pax_mesh(config.settings);
  const std::string why(status.message());
  return absl::InvalidArgumentError(
      absl::StrCat(is_about_pax_mesh ? in_pax_words(config.settings, why) : why, meshes));
}

}  // namespace muster::jobspec
