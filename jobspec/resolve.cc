#include "jobspec/resolve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/absl_view.h"
#include "common/limits.h"
#include "jobspec/data_keys.h"
#include "jobspec/model_keys.h"
#include "jobspec/optimizer_keys.h"
#include "jobspec/pipeline_keys.h"
#include "jobspec/quantization_keys.h"
#include "jobspec/remat_keys.h"
#include "jobspec/settings_reader.h"
#include "jobspec/stack_trace_keys.h"
#include "trainer_core/base/data_paths.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::jobspec {
namespace {

absl::StatusOr<std::string> absolute_path(std::string_view key, const std::string& path,
                                          const LaunchOptions& options) {
  if (path.empty()) return path;
  if (absl::StrContains(path, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat(av(key), "=", show(path),
                     ": remote storage is not supported; give a folder of the file system"));
  }
  std::filesystem::path full = path;
  if ((path == "~" || absl::StartsWith(path, "~/")) && !options.home.empty()) {
    full = std::filesystem::path(options.home) / path.substr(std::min<size_t>(2, path.size()));
  } else if (full.is_relative()) {
    full = std::filesystem::path(options.working_directory) / full;
  }
  std::string text = full.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// A preset's global_batch_size gives way to a user's per_device_batch_size; of two wishes both must hold.
bool uses_global_batch(const SettingsReader& reader, int64_t global) {
  if (global == 0) return false;
  return reader.is_wished("global_batch_size") || !reader.is_wished("per_device_batch_size");
}

std::string count_of_ranks(int64_t ranks) {
  return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks");
}

// Those who share a batch: ranks, or groups of ranks that compute one slice of it together.
std::string count_of_slices(const Mesh& mesh, int64_t slices) {
  if (slices == mesh.ranks()) return count_of_ranks(slices);
  return absl::StrCat(slices, " groups of ", count_of_ranks(mesh.ranks() / slices));
}

// Sequences of a slice's micro-batch, which need not be whole.
double read_share(SettingsReader& reader, const Mesh& mesh, int64_t slices, int32_t micro_batches) {
  double batch = 12;
  reader.read("per_device_batch_size", batch);
  int64_t global = 0;
  reader.read("global_batch_size", global);
  reader.require(global >= 0, "global_batch_size", "must be at least 0");
  if (!uses_global_batch(reader, global)) return batch * mesh.ranks() / static_cast<double>(slices);
  const std::string times =
      micro_batches == 1 ? "" : absl::StrCat(" times gradient_accumulation_steps=", micro_batches);
  reader.require(global % (slices * micro_batches) == 0, "global_batch_size",
                 absl::StrCat("must be a multiple of the ", count_of_slices(mesh, slices), times));
  const double of_ranks = batch * mesh.ranks() * micro_batches;
  reader.require(
      !reader.is_wished("per_device_batch_size") || of_ranks == static_cast<double>(global),
      "global_batch_size",
      absl::StrCat("per_device_batch_size=", batch, " times ", count_of_ranks(mesh.ranks()), times,
                   " is ", of_ranks, "; give one of the two"));
  return static_cast<double>(global) / static_cast<double>(slices * micro_batches);
}

void read_batch(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train) {
  reader.read("gradient_accumulation_steps", train.gradient_accumulation_steps);
  reader.require(train.gradient_accumulation_steps >= 1, "gradient_accumulation_steps",
                 "must be at least 1");
  const int64_t slices = mesh.group_size({.axes = trainer::kBatchAxes});
  const double batch =
      read_share(reader, mesh, slices, std::max(train.gradient_accumulation_steps, 1));
  const double global = batch * static_cast<double>(slices);
  const bool whole =
      batch >= 1 && batch <= std::numeric_limits<int32_t>::max() && std::floor(batch) == batch;
  const bool would_do =
      global >= 1 && global < static_cast<double>(slices) && std::floor(global) == global;
  reader.require(
      whole, "per_device_batch_size",
      absl::StrCat("a rank trains on whole sequences, so it must be a whole number of at least 1; ",
                   count_of_slices(mesh, slices), " would share ", global, " sequences",
                   would_do ? absl::StrCat(", for which ", count_of_ranks(std::llround(global)),
                                           " with 1 each would do")
                            : ""));
  if (whole) train.per_device_batch_size = static_cast<int32_t>(batch);
  reader.read("max_target_length", train.max_target_length);
}

// What base.yml leaves open, as MaxText's does.
constexpr MeshAxis kOpenInNode = MeshAxis::kFsdp, kOpenBetweenNodes = MeshAxis::kData;

// The degrees of one level ("ici" inside a node, "dcn" between nodes) as the user writes them.
using Degrees = std::array<int32_t, kMeshAxisCount>;

// `open` is base.yml's.
void read_level(SettingsReader& reader, std::string_view level, MeshAxis open, Degrees& degrees) {
  int32_t& of_open = degrees[static_cast<size_t>(open)];
  of_open = -1;
  for (size_t i = 0; i < degrees.size(); ++i)
    reader.read(mesh_key(level, static_cast<MeshAxis>(i)), degrees[i]);
  for (size_t i = 0; i < degrees.size(); ++i) {
    const auto axis = static_cast<MeshAxis>(i);
    // A person who opens another means that one.
    if (axis != open && degrees[i] == -1 && of_open == -1 &&
        !reader.is_wished(mesh_key(level, open)))
      of_open = 1;
  }
}

// The number of ranks that the degrees make; an open one adds none.
int32_t product_of(const Degrees& degrees) {
  int64_t product = 1;
  for (const int32_t degree : degrees) {
    product = std::min<int64_t>(product * std::max(degree, 1), std::numeric_limits<int32_t>::max());
  }
  return static_cast<int32_t>(product);
}

absl::StatusOr<Mesh> read_mesh(SettingsReader& reader, const LaunchOptions& options) {
  MeshShape shape;
  read_level(reader, "ici", kOpenInNode, shape.ici);
  read_level(reader, "dcn", kOpenBetweenNodes, shape.dcn);
  if (!reader.status().ok()) return reader.status();
  const int32_t nodes = options.nodes.value_or(product_of(shape.dcn));
  const int32_t ranks = options.ranks_per_node.value_or(product_of(shape.ici));
  if (nodes < 1 || nodes > kNodesMax || ranks < 1 || ranks > kRanksPerNodeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(nodes, " nodes with ", ranks, " ranks each: a job has 1 to ", kNodesMax,
                     " nodes and 1 to ", kRanksPerNodeMax, " ranks per node"));
  }
  return Mesh::resolve(shape, nodes, ranks);
}

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

// Each folder of a dataset_path.
absl::Status make_absolute(const LaunchOptions& options, std::string& dataset_path) {
  auto shares = trainer::parse_data_paths(dataset_path);
  if (!shares.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dataset_path=", show(dataset_path), ": ", shares.status().message()));
  }
  for (trainer::DataShare& share : *shares) {
    absl::StatusOr<std::string> full = absolute_path("dataset_path", share.folder, options);
    if (!full.ok()) return full.status();
    share.folder = *std::move(full);
  }
  dataset_path = trainer::data_paths_text(*shares);
  return absl::OkStatus();
}

// Fills in every path; returns the job's output folder.
absl::StatusOr<std::string> read_paths(SettingsReader& reader, const LaunchOptions& options,
                                       trainer::TrainConfig& train) {
  if (!reader.status().ok()) return reader.status();
  std::string base;
  reader.read("base_output_directory", base);
  reader.read("metrics_file", train.metrics_file);
  reader.read("tokenizer_path", train.tokenizer_path);
  reader.read("tokenizer_type", train.tokenizer_type);
  reader.read("load_parameters_path", train.load_parameters_path);
  const std::pair<std::string_view, std::string*> paths[] = {
      {"base_output_directory", &base},
      {"metrics_file", &train.metrics_file},
      {"tokenizer_path", &train.tokenizer_path},
      {"load_parameters_path", &train.load_parameters_path},
      {"eval_dataset_path", &train.eval.dataset_path}};
  for (const auto& [key, path] : paths) {
    absl::StatusOr<std::string> full = absolute_path(key, *path, options);
    if (!full.ok()) return full.status();
    *path = *std::move(full);
  }
  if (auto status = make_absolute(options, train.dataset_path); !status.ok()) return status;
  if (base.empty()) base = options.working_directory;
  return absl::StrCat(base, base == "/" ? "" : "/", train.run_name);
}

// `muster decode` reads them from the config; what cannot be right is said before hours of training.
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

// MaxText without these aborts goes on with parameters that are not finite; here the step is left out.
void read_not_finite_policy(SettingsReader& reader, trainer::NotFinitePolicy& policy,
                            std::vector<std::string>& warnings) {
  constexpr std::string_view kPolicy = "not_finite_policy";
  reader.read_choice(kPolicy, trainer::kNotFinitePolicyNames, policy);
  for (const std::string_view key : {"abort_on_nan_loss", "abort_on_inf_loss"}) {
    bool aborts = true;
    reader.read(key, aborts);
    if (aborts) continue;
    if (!reader.is_wished(kPolicy)) policy = trainer::NotFinitePolicy::kSkip;
    warnings.push_back(absl::StrCat(av(key), "=False: a step that is not finite is never applied; ",
                                    "what is done instead says not_finite_policy, which is ",
                                    av(name_of(trainer::kNotFinitePolicyNames, policy))));
    break;
  }
}

void warn_of_same_batches(const trainer::TrainConfig& train, std::vector<std::string>& warnings) {
  const bool goes_on = train.not_finite_policy != trainer::NotFinitePolicy::kAbort;
  if (!goes_on || train.dataset_type != trainer::DatasetType::kSynthetic) return;
  warnings.push_back(absl::StrCat(
      "not_finite_policy is ", av(name_of(trainer::kNotFinitePolicyNames, train.not_finite_policy)),
      ", but dataset_type is synthetic: its batch is the same each step, so another "
      "one is no help"));
}

// What every layer exchanges along tensor (trainer_core/parallel/mesh_exchange.h) goes between nodes.
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

absl::Status read_rest(SettingsReader& reader, trainer::TrainConfig& train) {
  reader.read("log_period", train.log_period);
  reader.read("init_weights_seed", train.init_weights_seed);
  reader.read("enable_checkpointing", train.enable_checkpointing);
  reader.read("async_checkpointing", train.async_checkpointing);
  reader.read("checkpoint_period", train.checkpoint_period);
  reader.read_optional("max_num_checkpoints_to_keep", train.max_checkpoints_to_keep);
  reader.read("save_checkpoint_on_completion", train.save_checkpoint_on_completion);
  reader.read("checkpoint_storage_target_data_file_size_bytes", train.checkpoint_file_bytes);
  reader.read("threads_per_rank", train.threads);
  check_sampling(reader);
  return reader.status();
}

void fill_spec(const LaunchOptions& options, const Mesh& mesh, const ResolvedJob& job,
               std::string output_directory, int32_t restarts_max, v1::JobSpec& spec) {
  spec.set_name(job.train.run_name);
  spec.set_user(options.user);
  spec.set_priority(options.priority);
  spec.set_nodes(mesh.nodes());
  spec.set_ranks_per_node(mesh.ranks_per_node());
  spec.set_restarts_max(restarts_max);
  spec.set_output_directory(std::move(output_directory));
  spec.set_steps(job.train.steps);
  spec.set_train_config_json(trainer::to_json(job.train).dump());
  for (const auto& [name, value] : options.environment) {
    (*spec.mutable_environment())[name] = value;
  }
}

// A file of a person's own that inherits from nothing.
absl::Status check_root(const Config& config) {
  for (const char* key :
       {"vocab_size", "base_emb_dim", "base_num_decoder_layers", "base_num_query_heads",
        "base_num_kv_heads", "head_dim", "base_mlp_dim"}) {
    if (find_setting(config.settings, key) != nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(config.root, ": ", key,
                                                   " is missing; a config of your own begins with "
                                                   "base_config: base.yml, which has all keys"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ResolvedJob> resolve_job(const Config& config, const LaunchOptions& options) {
  if (auto status = check_root(config); !status.ok()) return status;
  SettingsReader reader(config.settings);
  absl::StatusOr<Mesh> mesh = read_mesh(reader, options);
  if (!mesh.ok()) return mesh.status();
  ResolvedJob job(*mesh);
  job.warnings = config.warnings;
  trainer::TrainConfig& train = job.train;
  train.mesh = mesh->shape();
  reader.read("zero_stage", train.zero_stage);
  reader.read("run_name", train.run_name);
  if (train.run_name.empty()) train.run_name = options.default_run_name;
  if (auto status = check_run_name(config, train.run_name); !status.ok()) return status;
  if (auto status = read_model(reader, train.model, job.warnings); !status.ok()) return status;
  read_dtype(reader, train.dtype);
  if (auto status = read_quantization(reader, train.model.quantization, job.warnings); !status.ok())
    return status;
  if (auto status = read_remat(reader, train, job.warnings); !status.ok()) return status;
  read_optimizer(reader, train.optimizer, job.warnings);
  read_schedule(reader, train, job.warnings);
  read_batch(reader, *mesh, train);
  read_pipeline(reader, *mesh, train);
  read_not_finite_policy(reader, train.not_finite_policy, job.warnings);
  int32_t restarts_max = 3;
  reader.read("restarts_max", restarts_max);
  reader.require(restarts_max >= 0, "restarts_max", "must be at least 0");
  read_stack_traces(reader, *job.spec.mutable_stack_traces(), job.warnings);
  if (auto status = read_rest(reader, train); !status.ok()) return status;
  if (auto status = read_data(reader, train, job.warnings); !status.ok()) return status;
  absl::StatusOr<std::string> output = read_paths(reader, options, train);
  if (!output.ok()) return output.status();
  warn_of_same_batches(train, job.warnings);
  warn_of_tensor_between_nodes(train, job.warnings);
  train.checkpoint_directory = absl::StrCat(*output, "/checkpoints");
  if (auto status = trainer::validate(train); !status.ok()) return status;
  fill_spec(options, *mesh, job, *std::move(output), restarts_max, job.spec);
  return job;
}

}  // namespace muster::jobspec
