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

#include "common/absl_view.h"
#include "common/limits.h"
#include "jobspec/model_keys.h"
#include "jobspec/optimizer_keys.h"
#include "jobspec/remat_keys.h"
#include "jobspec/restrictions.h"
#include "jobspec/settings_reader.h"

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
  if (absl::StartsWith(path, "~/") && !options.home.empty()) {
    full = std::filesystem::path(options.home) / path.substr(2);
  } else if (full.is_relative()) {
    full = std::filesystem::path(options.working_directory) / full;
  }
  std::string text = full.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// The keys that one step of training can depend on, when model and batch are given.
constexpr std::array<std::string_view, 13> kStepKeys = {"learning_rate",
                                                        "adam_b1",
                                                        "adam_b2",
                                                        "adam_eps",
                                                        "adam_eps_root",
                                                        "adam_weight_decay",
                                                        "weight_decay_times_learning_rate",
                                                        "adamw_mask",
                                                        "adam_clip_threshold",
                                                        "gradient_clipping_threshold",
                                                        "opt_type",
                                                        "remat_policy",
                                                        "threads_per_rank"};

// A preset's global_batch_size gives way to a user's per_device_batch_size; of two wishes both must hold.
bool uses_global_batch(const SettingsReader& reader, int64_t global) {
  if (global == 0) return false;
  return reader.is_wished("global_batch_size") || !reader.is_wished("per_device_batch_size");
}

std::string count_of_ranks(int64_t ranks) {
  return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks");
}

// Pax's fractions are for meshes whose ranks share a sequence (tensor, sequence, …): where the mesh has such an axis, the
// mesh is what this version cannot do, and validate() says so.
double read_rank_batch(SettingsReader& reader, const Mesh& mesh) {
  double batch = 12;
  reader.read("per_device_batch_size", batch);
  int64_t global = 0;
  reader.read("global_batch_size", global);
  reader.require(global >= 0, "global_batch_size", "must be at least 0");
  const int64_t ranks = mesh.ranks();
  if (!uses_global_batch(reader, global)) return batch;
  reader.require(global % ranks == 0, "global_batch_size",
                 absl::StrCat("must be a multiple of the ", count_of_ranks(ranks)));
  const double share = static_cast<double>(global) / static_cast<double>(ranks);
  reader.require(!reader.is_wished("per_device_batch_size") || batch == share, "global_batch_size",
                 absl::StrCat("per_device_batch_size=", batch, " times ", count_of_ranks(ranks),
                              " is ", batch * static_cast<double>(ranks), "; give one of the two"));
  return share;
}

void read_batch(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train) {
  const double batch = read_rank_batch(reader, mesh);
  const int64_t ranks = mesh.ranks();
  const double global = batch * static_cast<double>(ranks);
  const bool whole =
      batch >= 1 && batch <= std::numeric_limits<int32_t>::max() && std::floor(batch) == batch;
  const bool ranks_share = ranks != mesh.degree(MeshAxis::kData);
  if (!ranks_share || batch <= 0 || std::floor(global) != global) {
    reader.require(
        whole, "per_device_batch_size",
        absl::StrCat("a rank trains on whole sequences, so it must be a whole number "
                     "of at least 1; ",
                     count_of_ranks(ranks), " would share ", global, " sequences",
                     global >= 1 && std::floor(global) == global
                         ? absl::StrCat(", for which ", count_of_ranks(std::llround(global)),
                                        " with 1 each would do")
                         : ""));
  }
  if (whole) train.per_device_batch_size = static_cast<int32_t>(batch);
  reader.read("max_target_length", train.max_target_length);
}

absl::StatusOr<Mesh> read_mesh(SettingsReader& reader, const LaunchOptions& options) {
  MeshShape shape;
  int64_t ici = 1;
  int64_t dcn = 1;
  shape.ici[0] = -1;
  shape.dcn[0] = -1;
  for (size_t axis = 0; axis < kMeshAxisNames.size(); ++axis) {
    reader.read(absl::StrCat("ici_", av(kMeshAxisNames[axis]), "_parallelism"), shape.ici[axis]);
    reader.read(absl::StrCat("dcn_", av(kMeshAxisNames[axis]), "_parallelism"), shape.dcn[axis]);
    // An open or invalid axis makes the product useless as a default; resolve() judges it.
    const auto multiply = [](int64_t product, int32_t degree) {
      return degree < 1 || product * degree > kRanksPerNodeMax * kNodesMax ? 0 : product * degree;
    };
    ici = multiply(ici, shape.ici[axis]);
    dcn = multiply(dcn, shape.dcn[axis]);
  }
  if (!reader.status().ok()) return reader.status();
  const int32_t nodes = options.nodes.value_or(dcn > 0 ? static_cast<int32_t>(dcn) : 1);
  const int32_t ranks = options.ranks_per_node.value_or(ici > 0 ? static_cast<int32_t>(ici) : 1);
  if (nodes < 1 || nodes > kNodesMax || ranks < 1 || ranks > kRanksPerNodeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(nodes, " nodes with ", ranks, " ranks each: a job has 1 to ", kNodesMax,
                     " nodes and 1 to ", kRanksPerNodeMax, " ranks per node"));
  }
  return Mesh::resolve(shape, nodes, ranks);
}

absl::Status check_run_name(std::string_view name) {
  bool fits = !name.empty() && name.size() <= kNameBytesMax && name.front() != '.';
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    fits = fits && (absl::ascii_isalnum(u) || c == '.' || c == '_' || c == '-');
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("run_name=", show(std::string(name)), ": a name has 1 to ", kNameBytesMax,
                   " letters, digits, '.', '_' or '-', and does not begin with '.'"));
}

// Fills in every path; returns the job's output folder.
absl::StatusOr<std::string> read_paths(SettingsReader& reader, const LaunchOptions& options,
                                       trainer::TrainConfig& train) {
  std::string base;
  reader.read("base_output_directory", base);
  reader.read("metrics_file", train.metrics_file);
  reader.read("tokenizer_path", train.tokenizer_path);
  std::string dataset_type = "synthetic";
  reader.read("dataset_type", dataset_type);
  train.dataset_type =
      dataset_type == "shards" ? trainer::DatasetType::kShards : trainer::DatasetType::kSynthetic;
  // Synthetic runs are often given MaxText's placeholder dataset_path=local: it is not a path.
  if (train.dataset_type == trainer::DatasetType::kShards) {
    reader.read("dataset_path", train.dataset_path);
  }
  const std::pair<std::string_view, std::string*> paths[] = {
      {"base_output_directory", &base},
      {"metrics_file", &train.metrics_file},
      {"tokenizer_path", &train.tokenizer_path},
      {"dataset_path", &train.dataset_path}};
  for (const auto& [key, path] : paths) {
    absl::StatusOr<std::string> full = absolute_path(key, *path, options);
    if (!full.ok()) return full.status();
    *path = *std::move(full);
  }
  if (base.empty()) base = options.working_directory;
  return absl::StrCat(base, base == "/" ? "" : "/", train.run_name);
}

absl::Status read_rest(SettingsReader& reader, trainer::TrainConfig& train) {
  reader.read("log_period", train.log_period);
  reader.read("init_weights_seed", train.init_weights_seed);
  reader.read("data_shuffle_seed", train.data_shuffle_seed);
  reader.read("enable_data_shuffling", train.enable_data_shuffling);
  reader.read("enable_checkpointing", train.enable_checkpointing);
  reader.read("checkpoint_period", train.checkpoint_period);
  reader.read_optional("max_num_checkpoints_to_keep", train.max_checkpoints_to_keep);
  reader.read("save_checkpoint_on_completion", train.save_checkpoint_on_completion);
  reader.read("threads_per_rank", train.threads);
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

}  // namespace

absl::StatusOr<ResolvedJob> resolve_job(const Config& config, const LaunchOptions& options) {
  SettingsReader reader(config.settings);
  absl::StatusOr<Mesh> mesh = read_mesh(reader, options);
  if (!mesh.ok()) return mesh.status();
  ResolvedJob job(*mesh);
  job.warnings = config.warnings;
  trainer::TrainConfig& train = job.train;
  train.mesh = mesh->shape();
  reader.read("run_name", train.run_name);
  if (train.run_name.empty()) train.run_name = options.default_run_name;
  if (auto status = check_run_name(train.run_name); !status.ok()) return status;
  if (auto status = read_model(reader, train.model, job.warnings); !status.ok()) return status;
  if (auto status = read_remat(reader, train, job.warnings); !status.ok()) return status;
  read_optimizer(reader, train.optimizer, job.warnings);
  read_schedule(reader, train, job.warnings);
  read_batch(reader, *mesh, train);
  int32_t restarts_max = 3;
  reader.read("restarts_max", restarts_max);
  reader.require(restarts_max >= 0, "restarts_max", "must be at least 0");
  if (auto status = read_rest(reader, train); !status.ok()) return status;
  absl::StatusOr<std::string> output = read_paths(reader, options, train);
  if (!output.ok()) return output.status();
  train.checkpoint_directory = absl::StrCat(*output, "/checkpoints");
  if (auto status = trainer::validate(train); !status.ok()) return status;
  fill_spec(options, *mesh, job, *std::move(output), restarts_max, job.spec);
  return job;
}

absl::StatusOr<trainer::TrainConfig> resolve_step(const std::vector<std::string>& overrides) {
  Settings settings;
  for (const std::string& text : overrides) {
    const auto split = split_override(text);
    if (!split.ok()) return split.status();
    const auto keys = keys_named(split->first, "");
    if (!keys.ok()) return keys.status();
    for (const Key* key : *keys) {
      if (is_remat_key(key->name)) continue;
      if (std::find(kStepKeys.begin(), kStepKeys.end(), key->name) != kStepKeys.end()) continue;
      std::string known;
      for (const std::string_view name : kStepKeys)
        absl::StrAppend(&known, known.empty() ? "" : ", ", av(name));
      return absl::InvalidArgumentError(absl::StrCat(
          text, ": ", av(key->name), " has no part in a single step; these have: ", known));
    }
    absl::Status status =
        set_from_text(settings, split->first, split->second, "command line", Layer::kCommandLine);
    if (!status.ok()) return status;
  }
  if (auto status = check_restrictions(settings); !status.ok()) return status;
  SettingsReader reader(settings);
  trainer::TrainConfig train;
  train.run_name = "debug";
  train.steps = train.optimizer.schedule_steps = 1;
  train.enable_checkpointing = false;
  // The model is whatever the step is made of; the smallest one stands in its place.
  trainer::ModelConfig& model = train.model;
  model.vocab_size = model.head_dim = 2;
  model.emb_dim = model.num_layers = model.num_query_heads = model.num_kv_heads = model.mlp_dim = 1;
  train.max_target_length = 1;
  std::vector<std::string> warnings;  // all policies compute the same
  read_optimizer(reader, train.optimizer, warnings);
  reader.read("threads_per_rank", train.threads);
  train.remat_policy = trainer::RematPolicy::kNone;
  if (auto status = read_remat(reader, train, warnings); !status.ok()) return status;
  if (!reader.status().ok()) return reader.status();
  if (auto status = trainer::validate(train); !status.ok()) return status;
  return train;
}

}  // namespace muster::jobspec
