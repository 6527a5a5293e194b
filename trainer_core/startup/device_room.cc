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

#include "common/text/absl_view.h"
#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {
namespace {
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
  for (const auto& [name, bytes] : device_uses(plan, beside)) row(name, bytes);
  row("together", plan.device_bytes() + sum_of(beside));
  return table;
}

// Returns whether the ranks fit if each has a GPU of the same size for itself.
bool fit_on_separate_gpus(const TrainConfig& config, std::span<const int32_t> ranks,
                          const DeviceRoom& room) {
  DeviceRoom own = room;
  own.nccl = own.has_nccl;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (needed_bytes(config, ranks.subspan(i, 1), own) > own.free_bytes) return false;
  return true;
}

// Returns the changes with which these ranks would fit on the device.
std::vector<FittingChange> changes_for(const TrainConfig& config, std::span<const int32_t> ranks,
                                       const DeviceRoom& room) {
  std::vector<FittingChange> changes = fitting_changes(
      config, {.fsdp = Fsdp::kMoreInNode}, room.free_bytes,
      [&](const TrainConfig& changed) { return needed_bytes(changed, ranks, room); });
  if (ranks.size() > 1 && fit_on_separate_gpus(config, ranks, room))
    changes.push_back({.keys = "", .note = "a GPU for each rank"});
  return changes;
}

std::string what_would_fit(const TrainConfig& config, const std::vector<FittingChange>& changes) {
  if (!changes.empty()) return absl::StrCat("what would fit: ", sentence_of(changes));
  return absl::StrCat(
      "nothing was found that fits: ",
      insufficient_changes(config, absl::StrCat(kFsdpTimesMax, " times ici_fsdp_parallelism")),
      " need more; use a GPU with more memory");
}

absl::Status no_room(const TrainConfig& config, std::span<const int32_t> ranks,
                     const DeviceRoom& room, const std::string& what,
                     const std::vector<FittingChange>& changes) {
  return absl::ResourceExhaustedError(
      absl::StrCat("rank ", ranks[0], "'s plan on ", room.device, ", and the memory beside it:\n",
                   table_of(plan_of(config, ranks[0]), beside_plan(config, room)), list_of(changes),
                   "out of memory: ", what, "; ", what_would_fit(config, changes)));
}

}  // namespace

std::vector<DeviceReserve> beside_plan(const TrainConfig& config, const DeviceRoom& room) {
  std::vector<DeviceReserve> all = room.beside;
  if (const size_t graphs = graph_bytes(config); graphs > 0) all.push_back({"CUDA graphs", graphs});
  if (room.nccl && mesh_of(config.mesh).ranks() > 1) all.push_back({"NCCL", nccl_bytes(config)});
  return all;
}

std::vector<DeviceReserve> device_uses(const MemoryPlan& plan,
                                       const std::vector<DeviceReserve>& beside) {
  constexpr std::array kOfHost = {MemoryCategory::kOffloaded, MemoryCategory::kCheckpoint};
  std::vector<DeviceReserve> uses;
  for (size_t i = 0; i < kMemoryCategoryNames.size(); ++i) {
    const auto category = static_cast<MemoryCategory>(i);
    const size_t bytes = plan.category_bytes(category);
    if (bytes == 0 || std::ranges::find(kOfHost, category) != kOfHost.end()) continue;
    uses.push_back({kMemoryCategoryNames[i], bytes});
  }
  uses.insert(uses.end(), beside.begin(), beside.end());
  return uses;
}

absl::StatusOr<std::vector<size_t>> check_device_room(const TrainConfig& config,
                                                      std::span<const int32_t> ranks,
                                                      const DeviceRoom& room) {
  std::vector<size_t> plans = plan_bytes(config, ranks);
  const size_t needed = needed_bytes(config, plans, room);
  if (needed <= room.free_bytes) return plans;
  return out_of_memory(config, ranks, room, needed, changes_for(config, ranks, room));
}

absl::Status out_of_memory(const TrainConfig& config, std::span<const int32_t> ranks,
                           const DeviceRoom& room, size_t needed,
                           const std::vector<FittingChange>& changes) {
  std::string subject = absl::StrCat("rank ", ranks[0], " needs");
  if (ranks.size() > 1)
    subject = absl::StrCat("ranks ", absl::StrJoin(ranks, ", "), " share a GPU and need");
  return no_room(config, ranks, room,
                 absl::StrFormat("%s %.0f MiB of the GPU's memory, %.0f MiB are free", subject,
                                 static_cast<double>(needed) / kMiB,
                                 static_cast<double>(room.free_bytes) / kMiB),
                 changes);
}

absl::Status refused_by_device(const TrainConfig& config, int32_t rank, const DeviceRoom& room) {
  return no_room(
      config, std::array{rank}, room,
      absl::StrFormat(
          "the GPU refused to allocate the %.0f MiB of rank %d's plan; %.0f MiB are free",
          static_cast<double>(plan_of(config, rank).device_bytes()) / kMiB, rank,
          static_cast<double>(room.free_bytes) / kMiB),
      changes_for(config, std::array{rank}, room));
}

}  // namespace muster::trainer
