#include "trainer_core/startup/preflight.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <nlohmann/json.hpp>

#include "common/files/errno_status.h"
#include "common/files/free_space.h"
#include "common/files/missing_folders.h"
#include "common/objects/object_cache.h"
#include "common/process/start_limits.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/checkpoint/adapters.h"
#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/comm/nccl_api.h"
#include "trainer_core/input/data_order.h"
#include "trainer_core/input/training_data.h"
#include "trainer_core/model/param_spec.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/report/metrics_file.h"
#include "trainer_core/startup/choose_backend.h"
#include "trainer_core/startup/device_room.h"
#include "trainer_core/startup/fitting_changes.h"
#include "trainer_core/startup/initial_parameters.h"
#include "trainer_core/startup/load_config.h"
#include "trainer_core/startup/load_eval_tasks.h"
#include "trainer_core/startup/load_tokenizer.h"
#include "trainer_core/startup/node_memory.h"
#include "trainer_core/startup/remote_inputs.h"

namespace muster::trainer {
namespace {

namespace fs = std::filesystem;
// Checks ulimit -v, which bounds each rank alone. The driver of a device maps far more than any
// such limit.
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

}  // namespace

absl::Status check_memory(const TrainConfig& config, const MachineRoots& machine) {
  const NodeMemory needed = largest_node(config, mesh_of(config.mesh));
  if (auto status = check_address_space(config, needed); !status.ok()) return status;
  const auto available = available_memory(machine);
  if (!available) return absl::OkStatus();  // passes if the memory is unknown
  if (needed.total() <= available->bytes) return absl::OkStatus();
  const std::string list =
      list_of(fitting_changes(config, {}, available->bytes, [](const TrainConfig& changed) {
        return largest_node(changed, mesh_of(changed.mesh)).total();
      }));
  return absl::ResourceExhaustedError(absl::StrCat(
      absl::StrFormat(
          "the %s needs %.0f MiB of memory (%s), but this machine has %.0f MiB available%s",
          config.only_evaluates() ? "evaluation" : "training",
          static_cast<double>(needed.total()) / kMiB, needed.describe(),
          static_cast<double>(available->bytes) / kMiB, limit_note(*available)),
      list.empty()
          ? absl::StrCat("; nothing was found that fits: ",
                         insufficient_changes(config, "more nodes along dcn_fsdp_parallelism"),
                         " need more", needed.ranks > 1 ? "; use fewer ranks per node" : "")
          : absl::StrCat("\n", absl::StripTrailingAsciiWhitespace(list))));
}

namespace {

// Checks that each GPU has room for its ranks, whichever ranks of the mesh this machine gets.
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
    // This memory counts as free: this process ends before the ranks start, and each of them needs
    // as much.
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

// Checks that the machine has the configured `hardware` and, by `plan`, that its devices have room.
// Replaces kAuto by the choice.
absl::Status check_backend(TrainConfig& config, PlanCheck plan) {
  if (config.hardware == Hardware::kCpu) return absl::OkStatus();
  auto chosen = choose_backend(config.hardware, 1, gpu_options(config, {}));
  if (!chosen.ok()) return chosen.status();
  config.hardware = chosen->hardware;
  if (config.hardware != Hardware::kGpu || plan == PlanCheck::kOmit) return absl::OkStatus();
  return check_gpus(config, std::move(chosen->backend));
}

// Returns the free space of the file system in which `folder` is or will be made.
std::optional<uint64_t> free_bytes_near(const std::string& folder) {
  const auto missing = missing_folders(folder);
  return free_space_bytes(missing.empty() ? folder : missing.back().parent_path().string());
}

// Checks the folder from which the ranks of a node upload their part of a checkpoint.
absl::Status check_staging_room(const TrainConfig& config) {
  if (!config.enable_checkpointing || !is_object_url(config.checkpoint_directory))
    return absl::OkStatus();
  const std::string folder = object_cache_folder();
  const size_t needed = std::ranges::max(saved_bytes_by_node(config, mesh_of(config.mesh)));
  const auto available = free_bytes_near(folder);
  if (!available || *available >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("no room in ", folder, " for a node's part of a checkpoint before its upload",
                   missing_room(available, needed), "; MUSTER_OBJECT_CACHE=FOLDER sets another"));
}

// Checks the file system of local checkpoints: a memory-backed one has its own size limit.
absl::Status check_local_room(const TrainConfig& config) {
  if (!config.enable_emergency_checkpoint) return absl::OkStatus();
  const std::string folder =
      config.local_checkpoint_directory.empty() ? "/dev/shm" : config.local_checkpoint_directory;
  const size_t needed = std::ranges::max(local_bytes_by_node(config, mesh_of(config.mesh)));
  const auto available = free_bytes_near(folder);
  if (!available || *available >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "enable_emergency_checkpoint: %s has no room for local checkpoints: a node stores %.0f MiB "
      "(its ranks' saves and copies of another node's, twice while a save is written), "
      "%.0f MiB are free; make it larger, set another local_checkpoint_directory, or set "
      "enable_emergency_checkpoint=False",
      folder, static_cast<double>(needed) / kMiB, static_cast<double>(*available) / kMiB));
}

absl::Status check_tokenizer(const TrainConfig& config, std::optional<uint64_t>& fingerprint) {
  // Synthetic tokens need none; MaxText's base.yml names one nevertheless.
  const bool has_text = config.dataset_type != DatasetType::kSynthetic;
  if (config.tokenizer_path.empty() || (!has_text && config.eval.tasks.empty()))
    return absl::OkStatus();
  const auto tokenizer = load_tokenizer(config);
  if (!tokenizer.ok()) return tokenizer.status();
  fingerprint = (*tokenizer)->fingerprint();
  // The command that started the check shows these lines (cli/run/preflight.cc).
  for (const std::string& note : (*tokenizer)->notes())
    std::cerr << "note: " << config.tokenizer_path << ": " << note << std::endl;
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
          config.tokenizer_path, "; tokenize again or set tokenizer_path"));
    }
    if (index.tokens * token_bytes_for(index.vocab_size) > kPreflightPayloadBytesMax) continue;
    if (auto status = dataset->verify_shards(); !status.ok()) return status;
  }
  return data->order;
}

// Checks that the directory has room for a checkpoint of `needed` bytes.
absl::Status check_room(const TrainConfig& config, uint64_t needed) {
  if (is_object_url(config.checkpoint_directory)) return absl::OkStatus();
  const auto available = free_bytes_near(config.checkpoint_directory);
  if (!available || *available >= needed) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "checkpoint directory %s has no room: a checkpoint takes %.0f MiB, %.0f MiB are free",
      config.checkpoint_directory, static_cast<double>(needed) / kMiB,
      static_cast<double>(*available) / kMiB));
}

// Checks load_parameters_path. Returns the hash of the base of adapters or of the reference model;
// empty without either, or if it is not on this machine yet.
absl::StatusOr<std::string> check_initial_parameters(const TrainConfig& config, bool base_is_here) {
  if (config.load_parameters_path.empty()) {
    if (!has_base(config) || !base_is_here) return "";
    return hash_of_random_base(config.init_weights_seed);
  }
  std::vector<std::string> notes;  // not printed: the run itself prints them
  const auto source = open_initial_parameters(config, notes);
  if (!source.ok()) return source.status();
  if (!has_base(config)) return "";
  return hash_of_base(**source);
}

absl::Status check_start(const TrainConfig& config, bool base_is_here) {
  const auto hash = check_initial_parameters(config, base_is_here);
  return hash.ok() ? check_adapters(config, *hash) : hash.status();
}

absl::Status check_checkpoints(const TrainConfig& config, const nlohmann::json& data_order,
                               bool base_is_here) {
  if (!config.enable_checkpointing) return check_start(config, base_is_here);
  const CheckpointStore store(config.checkpoint_directory, config.max_checkpoints_to_keep);
  const ShardLayout shards = ShardLayout::whole(model_params(config.model), config.weight_type());
  const auto optimizer = Optimizer::make(config.optimizer, shards);
  const CheckpointLayout layout = checkpoint_layout(config.model, shards, *optimizer);
  // The run itself verifies checksums and reports damaged checkpoints.
  std::vector<std::string> notes;
  auto newest = store.newest(notes, /*checksums=*/false);
  if (!newest.ok()) return newest.status();
  if (newest->has_value()) {
    const auto same_data = judge_data_order(config, **newest, data_order);
    if (!same_data.ok()) return same_data.status();
    if (auto status = store.check_layout(**newest, layout); !status.ok()) return status;
    // Checkpoints have neither the base of adapters nor a reference model.
    if (has_base(config)) {
      const auto hash = check_initial_parameters(config, base_is_here);
      if (!hash.ok()) return hash.status();
      if (auto status = judge_base(config, *hash, **newest); !status.ok()) return status;
    }
  } else if (auto status = check_start(config, base_is_here); !status.ok()) {
    return status;
  }
  return check_room(config, layout.bytes());
}

// Reads which checkpoints a store has.
absl::Status check_remote_output(const TrainConfig& config) {
  if (!config.enable_checkpointing || !is_object_url(config.checkpoint_directory))
    return absl::OkStatus();
  std::vector<std::string> notes;
  return CheckpointStore(config.checkpoint_directory, config.max_checkpoints_to_keep)
      .newest(notes, /*checksums=*/false)
      .status();
}

// Checks that only read.
absl::Status check_machine(TrainConfig config, const std::optional<MachineRoots>& machine,
                           PlanCheck plan) {
  if (machine) {
    if (auto status = check_backend(config, plan); !status.ok()) return status;
    if (plan == PlanCheck::kCompare)
      if (auto status = check_memory(config, *machine); !status.ok()) return status;
    if (auto status = check_local_room(config); !status.ok()) return status;
    if (auto status = check_staging_room(config); !status.ok()) return status;
  }
  std::optional<uint64_t> fingerprint;
  if (auto status = check_tokenizer(config, fingerprint); !status.ok()) return status;
  if (auto status = load_eval_tasks(config, config).status(); !status.ok()) return status;
  const auto known = with_cached_inputs(config);
  if (!known.ok()) return known.status();
  // Data that is not here yet: the ranks check it, and compare its order with the checkpoint's.
  if (known->dataset_path.empty() && !config.dataset_path.empty())
    return check_remote_output(*known);
  const auto data_order = check_data(*known, fingerprint);
  if (!data_order.ok()) return data_order.status();
  const bool base_is_here =
      config.load_parameters_path.empty() || !known->load_parameters_path.empty();
  return check_checkpoints(*known, *data_order, base_is_here);
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
  if (config.tensorboard_dir.empty() || is_object_url(config.tensorboard_dir))
    return absl::OkStatus();
  std::error_code error;
  fs::create_directories(config.tensorboard_dir, error);
  if (access(config.tensorboard_dir.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return errno_status(
      error ? error.value() : errno,
      absl::StrCat("enable_tensorboard: ", config.tensorboard_dir, " cannot be written"));
}

}  // namespace

absl::Status preflight(const TrainConfig& config, const std::optional<MachineRoots>& machine,
                       PlanCheck plan) {
  if (auto status = check_machine(config, machine, plan); !status.ok()) return status;
  const auto missing_of = [](const std::string& folder) {
    return is_object_url(folder) ? std::vector<fs::path>() : missing_folders(folder);
  };
  const std::array missing = {missing_of(config.checkpoint_directory),
                              missing_of(config.tensorboard_dir),
                              missing_folders(fs::path(config.metrics_file).parent_path())};
  const absl::Status status = check_writing(config);
  if (!status.ok()) std::ranges::for_each(missing, remove_empty);
  return status;
}

}  // namespace muster::trainer
