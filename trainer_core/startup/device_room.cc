#include "trainer_core/startup/device_room.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/absl_view.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {
constexpr auto kFsdp = static_cast<size_t>(MeshAxis::kFsdp);
// A suggestion of more FSDP than this is of no practical use.
constexpr int32_t kFsdpTimesMax = 64;

MemoryPlan plan_of(const TrainConfig& config, int32_t rank) {
  // The number of threads affects only workspaces of the CPU backend.
  return plan_training(config, /*threads=*/1, staging_of(config, rank), rank).memory();
}

// Returns the device bytes of each rank's plan.
std::vector<size_t> plan_bytes(const TrainConfig& config, std::span<const int32_t> ranks) {
  std::map<MeshCoordinate, size_t> plans;  // ranks along data have the same plan
  const Mesh mesh = mesh_of(config.mesh);
  std::vector<size_t> bytes;
  for (const int32_t rank : ranks) {
    MeshCoordinate coordinate = mesh.coordinate(rank);
    coordinate[static_cast<size_t>(MeshAxis::kData)] = 0;
    const auto [plan, is_new] = plans.try_emplace(coordinate);
    if (is_new) plan->second = plan_of(config, rank).device_bytes();
    bytes.push_back(plan->second);
  }
  return bytes;
}

// Returns the memory that all ranks with these plans need together.
size_t needed_bytes(const TrainConfig& config, const std::vector<size_t>& plans,
                    const DeviceRoom& room) {
  return std::accumulate(plans.begin(), plans.end(),
                         plans.size() * sum_of(beside_plan(config, room)));
}
size_t needed_bytes(const TrainConfig& config, std::span<const int32_t> ranks,
                    const DeviceRoom& room) {
  return needed_bytes(config, plan_bytes(config, ranks), room);
}

std::string table_of(const MemoryPlan& plan, const std::vector<DeviceReserve>& beside) {
  std::string table;
  const auto row = [&](std::string_view name, size_t bytes) {
    absl::StrAppendFormat(&table, "  %-14s %12.1f MiB\n", av(name),
                          static_cast<double>(bytes) / kMiB);
  };
  constexpr std::array kOfHost = {MemoryCategory::kOffloaded, MemoryCategory::kCheckpoint};
  for (size_t i = 0; i < kMemoryCategoryNames.size(); ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    const size_t bytes = plan.category_bytes(category);
    if (bytes == 0 || std::ranges::find(kOfHost, category) != kOfHost.end()) continue;
    row(kMemoryCategoryNames[i], bytes);
  }
  for (const auto& [name, bytes] : beside) row(name, bytes);
  row("together", plan.device_bytes() + sum_of(beside));
  return table;
}

// A change of the config with which the ranks would fit, and the keys that a user must set.
struct Change {
  TrainConfig config;
  std::string keys;
};

class Changes {
 public:
  Changes(const TrainConfig& config, std::span<const int32_t> ranks, const DeviceRoom& room)
      : config_(config), ranks_(ranks), room_(room) {}

  // Returns each change that suffices by itself.
  std::vector<std::string> alone() const {
    std::vector<std::string> found;
    for (const auto& change : {smaller_batch(config_), other_remat(config_), more_fsdp(config_)})
      if (change) found.push_back(change->keys);
    if (ranks_.size() > 1 && fit_on_separate_gpus()) found.push_back("a GPU for each rank");
    return found;
  }
  // Combines the smallest batch, the remat policy that retains least, and as much FSDP as needed.
  std::optional<std::string> together() const {
    TrainConfig least = config_;
    least.per_device_batch_size = config_.pipeline_microbatches;
    least.remat_policy = RematPolicy::kFull;
    if (!validate(least).ok()) return std::nullopt;
    const std::string keys = absl::StrCat(batch_key(least), " remat_policy=full");
    if (fits(least, ranks_)) return keys;
    const auto more = more_fsdp(least);
    return more ? std::optional(absl::StrCat(keys, " ", more->keys)) : std::nullopt;
  }

 private:
  bool fits(const TrainConfig& config, std::span<const int32_t> ranks) const {
    return validate(config).ok() && needed_bytes(config, ranks, room_) <= room_.free_bytes;
  }
  // Returns whether the ranks fit if each has a GPU of the same size for itself.
  bool fit_on_separate_gpus() const {
    DeviceRoom own = room_;
    own.nccl = own.has_nccl;
    for (size_t i = 0; i < ranks_.size(); ++i)
      if (needed_bytes(config_, ranks_.subspan(i, 1), own) > own.free_bytes) return false;
    return true;
  }
  // Formats the key of the batch size. The key counts sequences per rank, but the config has those
  // of a slice.
  static std::string batch_key(const TrainConfig& config) {
    return absl::StrFormat(
        "per_device_batch_size=%g",
        static_cast<double>(config.per_device_batch_size) / ranks_of_slice(mesh_of(config.mesh)));
  }

  std::optional<Change> smaller_batch(TrainConfig config) const {
    while (config.per_device_batch_size > 1) {
      config.per_device_batch_size /= 2;
      if (!fits(config, ranks_)) continue;
      const int32_t times = config_.per_device_batch_size / config.per_device_batch_size;
      return Change{config,
                    absl::StrFormat("%s (with gradient_accumulation_steps=%d nearly as many "
                                    "sequences are in a step)",
                                    batch_key(config), times * config.gradient_accumulation_steps)};
    }
    return std::nullopt;
  }
  // Chooses the policy that retains most among those that fit.
  std::optional<Change> other_remat(TrainConfig config) const {
    std::optional<Change> best;
    size_t most = 0;
    for (size_t i = 0; i < kRematPolicyNames.size(); ++i) {
      config.remat_policy = static_cast<RematPolicy>(i);
      if (config.remat_policy == RematPolicy::kCustom ||
          config.remat_policy == config_.remat_policy || !fits(config, ranks_))
        continue;
      const size_t bytes = needed_bytes(config, ranks_, room_);
      if (bytes <= most) continue;
      most = bytes;
      best = Change{config, absl::StrCat("remat_policy=", av(kRematPolicyNames[i]))};
    }
    return best;
  }
  // The ranks of the current mesh are also ranks of the wider mesh, and a rank of the first
  // pipeline stage remains in the first stage.
  std::optional<Change> more_fsdp(const TrainConfig& config) const {
    for (int32_t times = 2; times <= kFsdpTimesMax; times *= 2) {
      TrainConfig wider = config;
      wider.mesh.ici[kFsdp] *= times;
      if (!fits(wider, ranks_)) continue;
      return Change{wider, absl::StrFormat("ici_fsdp_parallelism=%d (%d ranks)",
                                           wider.mesh.ici[kFsdp], mesh_of(wider.mesh).ranks())};
    }
    return std::nullopt;
  }

  const TrainConfig& config_;
  std::span<const int32_t> ranks_;
  const DeviceRoom& room_;
};

std::string what_would_fit(const TrainConfig& config, std::span<const int32_t> ranks,
                           const DeviceRoom& room) {
  const Changes changes(config, ranks, room);
  if (const auto alone = changes.alone(); !alone.empty())
    return absl::StrCat("what would fit: ", absl::StrJoin(alone, ", or "));
  if (const auto together = changes.together()) return absl::StrCat("what would fit: ", *together);
  return absl::StrFormat(
      "what would fit: a smaller model, max_target_length below %d, or a GPU "
      "with more memory; a smaller batch, another remat_policy and up to %d "
      "times ici_fsdp_parallelism do not",
      config.max_target_length, kFsdpTimesMax);
}

absl::Status no_room(const TrainConfig& config, std::span<const int32_t> ranks,
                     const DeviceRoom& room, const std::string& what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("rank ", ranks[0], "'s plan on ", room.device, ", and the memory beside it:\n",
                   table_of(plan_of(config, ranks[0]), beside_plan(config, room)),
                   "out of memory: ", what, "; ", what_would_fit(config, ranks, room)));
}

}  // namespace

std::vector<DeviceReserve> beside_plan(const TrainConfig& config, const DeviceRoom& room) {
  std::vector<DeviceReserve> all = room.beside;
  if (const size_t graphs = graph_bytes(config); graphs > 0) all.push_back({"CUDA graphs", graphs});
  if (room.nccl && mesh_of(config.mesh).ranks() > 1) all.push_back({"NCCL", nccl_bytes(config)});
  return all;
}

absl::StatusOr<std::vector<size_t>> check_device_room(const TrainConfig& config,
                                                      std::span<const int32_t> ranks,
                                                      const DeviceRoom& room) {
  std::vector<size_t> plans = plan_bytes(config, ranks);
  const size_t needed = needed_bytes(config, plans, room);
  if (needed <= room.free_bytes) return plans;
  std::string subject = absl::StrCat("rank ", ranks[0], " needs");
  if (ranks.size() > 1)
    subject = absl::StrCat("ranks ", absl::StrJoin(ranks, ", "), " share a GPU and need");
  return no_room(config, ranks, room,
                 absl::StrFormat("%s %.0f MiB of the GPU's memory, %.0f MiB are free", subject,
                                 static_cast<double>(needed) / kMiB,
                                 static_cast<double>(room.free_bytes) / kMiB));
}

absl::Status refused_by_device(const TrainConfig& config, int32_t rank, const DeviceRoom& room) {
  return no_room(
      config, std::array{rank}, room,
      absl::StrFormat(
          "the GPU refused to allocate the %.0f MiB of rank %d's plan; %.0f MiB are free",
          static_cast<double>(plan_of(config, rank).device_bytes()) / kMiB, rank,
          static_cast<double>(room.free_bytes) / kMiB));
}

}  // namespace muster::trainer
