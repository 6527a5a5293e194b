#include "trainer_core/startup/preflight.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "common/errno_status.h"
#include "common/free_space.h"
#include "common/missing_folders.h"
#include "common/start_limits.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/input/data_order.h"
#include "trainer_core/input/training_data.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/report/metrics_file.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/device_room.h"
#include "trainer_core/startup/initial_parameters.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/load_tokenizer.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
// The memory of a rank beside its plan: program and libraries, threads' stacks, the panels that a
// GEMM packs, and the block that a collective exchanges; 45 to 60 MiB were observed.
constexpr size_t kLibraryBytes = size_t{64} << 20;

// The memory that the ranks of a node will map.
struct NodeMemory {
  size_t bytes = 0;          // without the two below
  size_t staging_bytes = 0;  // for background checkpoints
  size_t local_bytes = 0;    // for local checkpoints, in memory-backed storage
  int32_t ranks = 0;
  int32_t largest_rank = 0;  // the rank that needs most
  size_t largest_bytes = 0;
  size_t smallest_bytes = std::numeric_limits<size_t>::max();

  size_t total() const { return bytes + staging_bytes + local_bytes; }
  void add(int32_t rank, const MemoryPlan& plan, size_t device_bytes) {
    const size_t staging = plan.category_bytes(MemoryCategory::kCheckpoint);
    const size_t rest = plan.total_bytes() - device_bytes - staging + kLibraryBytes;
    if (rest > largest_bytes) largest_rank = rank;
    largest_bytes = std::max(largest_bytes, rest);
    smallest_bytes = std::min(smallest_bytes, rest);
    bytes += rest;
    staging_bytes += staging;
    ++ranks;
  }
  // "4 ranks of 12 MiB"
  std::string describe() const {
    const double largest = static_cast<double>(largest_bytes) / kMiB;
    std::string text = largest_bytes == smallest_bytes
                           ? absl::StrFormat("%d ranks of %.0f MiB", ranks, largest)
                           : absl::StrFormat("%d ranks, of which rank %d takes most, %.0f MiB",
                                             ranks, largest_rank, largest);
    if (staging_bytes > 0)
      absl::StrAppendFormat(&text, ", and %.0f MiB for a checkpoint in the background",
                            static_cast<double>(staging_bytes) / kMiB);
    if (local_bytes > 0)
      absl::StrAppendFormat(&text, ", and %.0f MiB for local checkpoints",
                            static_cast<double>(local_bytes) / kMiB);
    return text;
  }
};

// Returns the bytes of local checkpoints per node: two saves at a time, each with the node's own
// writers' files and the copies of the previous node's.
std::vector<size_t> local_bytes_by_node(const TrainConfig& config, const Mesh& mesh) {
  std::vector<size_t> own(static_cast<size_t>(mesh.nodes())), all(own.size());
  if (!config.enable_emergency_checkpoint) return all;
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank) {
    if (!writes_checkpoints(mesh, rank)) continue;
    const ShardLayout shards = ShardLayout::of(config.model, mesh, rank, config.activation_type(),
                                               pipeline_shape(config).chunks);
    const auto optimizer = Optimizer::make(config.optimizer, shards);
    const int64_t numbers =
        shards.elements() + scaling_elements(config.model) + optimizer->state_elements();
    own[static_cast<size_t>(mesh.node_of(rank))] += static_cast<size_t>(numbers) * sizeof(float);
  }
  constexpr size_t kSaves = 2;
  for (size_t node = 0; node < all.size(); ++node) {
    all[node] = kSaves * own[node];
    if (all.size() > 1) all[node] += kSaves * own[(node + all.size() - 1) % all.size()];
  }
  return all;
}

// Returns the node that needs most: uneven shares, pipeline ends and writers make ranks differ.
NodeMemory largest_node(const TrainConfig& config, const Mesh& mesh) {
  RankEnv env;
  env.local_world_size = mesh.ranks_per_node();
  const int32_t threads = threads_per_rank(config, env);
  // Ranks along data have the same plan.
  std::map<std::pair<MeshCoordinate, Staging>, MemoryPlan> plans;
  const std::vector<size_t> local = local_bytes_by_node(config, mesh);
  NodeMemory largest;
  for (int32_t node = 0; node < mesh.nodes(); ++node) {
    NodeMemory memory;
    memory.local_bytes = local[static_cast<size_t>(node)];
    for (int32_t rank = node * mesh.ranks_per_node(); mesh.node_of(rank) == node; ++rank) {
      MeshCoordinate coordinate = mesh.coordinate(rank);
      coordinate[static_cast<size_t>(MeshAxis::kData)] = 0;
      const Staging staging = staging_of(config, rank);
      const auto [plan, is_new] = plans.try_emplace({coordinate, staging});
      if (is_new) plan->second = plan_training(config, threads, staging, rank).memory();
      const bool on_device = config.hardware == Hardware::kGpu;
      memory.add(rank, plan->second, on_device ? plan->second.device_bytes() : 0);
    }
    if (memory.total() > largest.total()) largest = memory;
  }
  return largest;
}

// ulimit -v bounds each rank alone. A device's driver maps far more than any such limit.
absl::Status check_address_space(const TrainConfig& config, const NodeMemory& needed) {
  const uint64_t limit = shell_limits().address_bytes;
  if (config.hardware == Hardware::kGpu || needed.largest_bytes <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrFormat("rank %d needs %.0f MiB of memory, but ulimit -v allows %.0f MiB of address "
                      "space; remove the "
                      "limit: ulimit -v unlimited",
                      needed.largest_rank, static_cast<double>(needed.largest_bytes) / kMiB,
                      static_cast<double>(limit) / kMiB));
}

// Without this check the OOM killer would find the shortage, after hours in a queue.
absl::Status check_memory(const TrainConfig& config, const MachineRoots& machine) {
  const NodeMemory needed = largest_node(config, mesh_of(config.mesh));
  if (auto status = check_address_space(config, needed); !status.ok()) return status;
  const auto available = available_memory(machine);
  if (!available) return absl::OkStatus();  // unknown does not mean too little
  if (needed.total() <= available->bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "the training needs %.0f MiB of memory (%s), but this machine has %.0f MiB available%s; "
      "lower "
      "per_device_batch_size (%d), max_target_length (%d), the number of ranks, or the model's "
      "sizes%s",
      static_cast<double>(needed.total()) / kMiB, needed.describe(),
      static_cast<double>(available->bytes) / kMiB, limit_note(*available),
      config.per_device_batch_size, config.max_target_length,
      needed.local_bytes > 0      ? ", or set enable_emergency_checkpoint=False"
      : needed.staging_bytes == 0 ? ""
                                  : ", or set async_checkpointing=False"));
}

// Checks that each GPU has room for its ranks, whichever node of the mesh this machine becomes.
absl::Status check_gpus(const TrainConfig& config, std::shared_ptr<Backend> first) {
  const Mesh mesh = mesh_of(config.mesh);
  const int32_t gpus = std::min(gpu_count(), mesh.ranks_per_node());
  const bool has_nccl = open_nccl().ok();
  for (int32_t gpu = 0; gpu < gpus; ++gpu) {
    RankEnv env;
    env.local_rank = gpu;
    const auto backend = gpu == 0 ? std::move(first) : gpu_backend(gpu_options(config, env));
    if (!backend.ok()) return backend.status();
    DeviceRoom room{.device = (*backend)->description(),
                    .free_bytes = (*backend)->free_bytes(),
                    .beside = backend_reserves((*backend)->own_bytes()),
                    .nccl = has_nccl && mesh.ranks_per_node() <= gpu_count(),
                    .has_nccl = has_nccl};
    // This process ends before the ranks begin, and each of them takes as much.
    room.free_bytes += sum_of(room.beside);
    room.beside.push_back(kKernelCode);
    for (int32_t node = 0; node < mesh.nodes(); ++node) {
      std::vector<int32_t> ranks;
      for (int32_t local = gpu; local < mesh.ranks_per_node(); local += gpu_count())
        ranks.push_back(node * mesh.ranks_per_node() + local);
      if (auto plans = check_device_room(config, ranks, room); !plans.ok()) return plans.status();
    }
  }
  return absl::OkStatus();
}

// Checks that the machine has the configured `hardware` and that its devices have room. Replaces
// auto by the choice.
absl::Status check_backend(TrainConfig& config) {
  if (config.hardware == Hardware::kCpu) return absl::OkStatus();
  auto chosen = choose_backend(config.hardware, 1, gpu_options(config, {}));
  if (!chosen.ok()) return chosen.status();
  config.hardware = chosen->hardware;
  return config.hardware == Hardware::kGpu ? check_gpus(config, std::move(chosen->backend))
                                           : absl::OkStatus();
}

// Checks the file system of local checkpoints: a memory-backed one has its own size limit.
absl::Status check_local_room(const TrainConfig& config) {
  if (!config.enable_emergency_checkpoint) return absl::OkStatus();
  const std::string folder =
      config.local_checkpoint_directory.empty() ? "/dev/shm" : config.local_checkpoint_directory;
  const auto missing = missing_folders(folder);
  const fs::path there = missing.empty() ? fs::path(folder) : missing.back().parent_path();
  const std::vector<size_t> nodes = local_bytes_by_node(config, mesh_of(config.mesh));
  const size_t needed = *std::ranges::max_element(nodes);
  const std::optional<uint64_t> available = free_space_bytes(there.string());
  if (!available || *available >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "enable_emergency_checkpoint: %s has no room for local checkpoints: a node stores %.0f MiB "
      "(its ranks' saves and copies of another node's, twice while a save is written), "
      "%.0f MiB are free; make it larger, set another local_checkpoint_directory, or set "
      "enable_emergency_checkpoint=False",
      folder, static_cast<double>(needed) / kMiB, static_cast<double>(*available) / kMiB));
}

absl::Status check_tokenizer(const TrainConfig& config, std::optional<uint64_t>& fingerprint) {
  if (config.tokenizer_path.empty()) return absl::OkStatus();
  const auto tokenizer = load_tokenizer(config);
  if (!tokenizer.ok()) return tokenizer.status();
  fingerprint = (*tokenizer)->fingerprint();
  return absl::OkStatus();
}

// Checks the data sets and returns the data order.
absl::StatusOr<nlohmann::json> check_data(const TrainConfig& config,
                                          std::optional<uint64_t> tokenizer_fingerprint) {
  const auto data = open_training_data(config);
  if (!data.ok()) return data.status();
  for (const auto& dataset : data->datasets) {
    const TokenIndex& index = dataset->index();
    if (tokenizer_fingerprint.has_value() &&
        *tokenizer_fingerprint != index.tokenizer_fingerprint) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the data set in ", dataset->folder(), " was made with another tokenizer than ",
          config.tokenizer_path, "; tokenise again or set tokenizer_path"));
    }
    if (index.tokens * token_bytes_for(index.vocab_size) > kPreflightPayloadBytesMax) continue;
    if (auto status = dataset->verify_payloads(); !status.ok()) return status;
  }
  return data->order;
}

// Checks that the directory has room for a checkpoint of `elements` fp32 values.
absl::Status check_room(const TrainConfig& config, int64_t elements) {
  const uint64_t needed = static_cast<uint64_t>(elements) * sizeof(float);
  const auto missing = missing_folders(config.checkpoint_directory);
  const fs::path there =
      missing.empty() ? fs::path(config.checkpoint_directory) : missing.back().parent_path();
  const std::optional<uint64_t> available = free_space_bytes(there.string());
  if (!available || *available >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "checkpoint directory %s has no room: a checkpoint takes %.0f MiB, %.0f MiB are free",
      config.checkpoint_directory, static_cast<double>(needed) / kMiB,
      static_cast<double>(*available) / kMiB));
}

absl::Status check_initial_parameters(const TrainConfig& config) {
  if (config.load_parameters_path.empty()) return absl::OkStatus();
  std::vector<std::string> notes;  // the run itself prints them
  return open_initial_parameters(config, notes).status();
}

absl::Status check_checkpoints(const TrainConfig& config, const nlohmann::json& data_order) {
  if (!config.enable_checkpointing) return check_initial_parameters(config);
  const CheckpointStore store(config.checkpoint_directory, config.max_checkpoints_to_keep);
  const std::vector<ParamSpec> table = model_params(config.model);
  const auto optimizer = Optimizer::make(config.optimizer, ShardLayout::whole(table));
  // The run itself verifies checksums and reports damaged checkpoints.
  std::vector<std::string> notes;
  auto newest = store.newest(notes, /*checksums=*/false);
  if (!newest.ok()) return newest.status();
  if (newest->has_value()) {
    const auto same_data = judge_data_order(config, **newest, data_order);
    if (!same_data.ok()) return same_data.status();
    const CheckpointLayout layout =
        checkpoint_layout(config.model, ShardLayout::whole(table), *optimizer);
    if (auto status = check_tensors((*newest)->folder, layout); !status.ok()) return status;
  } else if (auto status = check_initial_parameters(config); !status.ok()) {
    return status;
  }
  return check_room(config, parameter_count(table) + scaling_elements(config.model) +
                                optimizer->state_elements());
}

// Checks that only read.
absl::Status check_machine(TrainConfig config, const std::optional<MachineRoots>& machine) {
  if (machine) {
    if (auto status = check_backend(config); !status.ok()) return status;
    if (auto status = check_memory(config, *machine); !status.ok()) return status;
    if (auto status = check_local_room(config); !status.ok()) return status;
  }
  std::optional<uint64_t> fingerprint;
  if (auto status = check_tokenizer(config, fingerprint); !status.ok()) return status;
  const auto data_order = check_data(config, fingerprint);
  if (!data_order.ok()) return data_order.status();
  return check_checkpoints(config, *data_order);
}

// Checks that outputs can be written, by opening or creating them.
absl::Status check_writing(const TrainConfig& config) {
  if (config.enable_checkpointing) {
    const CheckpointStore store(config.checkpoint_directory, config.max_checkpoints_to_keep);
    if (auto status = store.prepare(); !status.ok()) return status;
  }
  if (!config.metrics_file.empty()) {
    if (auto status = MetricsFile::open(config.metrics_file, config.run_name).status();
        !status.ok())
      return status;
  }
  if (config.tensorboard_dir.empty()) return absl::OkStatus();
  std::error_code error;
  fs::create_directories(config.tensorboard_dir, error);
  if (access(config.tensorboard_dir.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return errno_status(
      error ? error.value() : errno,
      absl::StrCat("enable_tensorboard: ", config.tensorboard_dir, " cannot be written"));
}

}  // namespace

absl::Status preflight(const TrainConfig& config, const std::optional<MachineRoots>& machine) {
  if (auto status = check_machine(config, machine); !status.ok()) return status;
  const auto missing_for_metrics = missing_folders(fs::path(config.metrics_file).parent_path());
  const auto missing_for_events = missing_folders(config.tensorboard_dir);
  const auto missing_for_checkpoints = missing_folders(config.checkpoint_directory);
  const absl::Status status = check_writing(config);
  if (!status.ok()) {
    remove_empty(missing_for_checkpoints);
    remove_empty(missing_for_events);
    remove_empty(missing_for_metrics);
  }
  return status;
}

}  // namespace muster::trainer
