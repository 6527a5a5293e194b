#include "trainer_core/startup/node_memory.h"

#include <algorithm>
#include <map>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "trainer_core/base/train_mesh.h"
#include "trainer_core/base/units.h"
#include "trainer_core/model/scaling_state.h"
#include "trainer_core/rank/training_plan.h"
#include "trainer_core/startup/load_config.h"

namespace muster::trainer {
namespace {

size_t saved_bytes(const TrainConfig& config, const Mesh& mesh, int32_t rank) {
  const ShardLayout shards = shard_layout(config, mesh, rank);
  const auto optimizer = Optimizer::make(config.optimizer, shards);
  const int64_t elements =
      shards.stored_floats() + scaling_elements(config.model) + optimizer->state_elements();
  return static_cast<size_t>(elements) * sizeof(float);
}

}  // namespace

void NodeMemory::add(int32_t rank, const MemoryPlan& plan, size_t device_bytes) {
  const size_t staging = plan.category_bytes(MemoryCategory::kCheckpoint);
  const size_t rest = plan.total_bytes() - device_bytes - staging + kLibraryBytes;
  if (rest > largest_bytes) largest_rank = rank;
  largest_bytes = std::max(largest_bytes, rest);
  smallest_bytes = std::min(smallest_bytes, rest);
  bytes += rest;
  staging_bytes += staging;
  ++ranks;
}

std::string NodeMemory::describe() const {
  const double largest = static_cast<double>(largest_bytes) / kMiB;
  std::string text =
      largest_bytes == smallest_bytes
          ? absl::StrFormat("%d %s of %.0f MiB", ranks, ranks == 1 ? "rank" : "ranks", largest)
          : absl::StrFormat("%d ranks, of which rank %d takes most, %.0f MiB", ranks, largest_rank,
                            largest);
  if (staging_bytes > 0)
    absl::StrAppendFormat(&text, ", and %.0f MiB for a checkpoint in the background",
                          static_cast<double>(staging_bytes) / kMiB);
  if (local_bytes > 0)
    absl::StrAppendFormat(&text, ", and %.0f MiB for local checkpoints",
                          static_cast<double>(local_bytes) / kMiB);
  return text;
}

NodeMemory largest_node(const TrainConfig& config, const Mesh& mesh) {
  RankEnv env;
  env.local_world_size = mesh.ranks_per_node();
  const int32_t threads = threads_per_rank(config, env);
  // Ranks that differ only along the data axis have the same plan.
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

std::vector<size_t> saved_bytes_by_node(const TrainConfig& config, const Mesh& mesh) {
  std::vector<size_t> own(static_cast<size_t>(mesh.nodes()));
  for (int32_t rank = 0; rank < mesh.ranks(); ++rank)
    if (is_checkpoint_writer(mesh, rank))
      own[static_cast<size_t>(mesh.node_of(rank))] += saved_bytes(config, mesh, rank);
  return own;
}

std::vector<size_t> local_bytes_by_node(const TrainConfig& config, const Mesh& mesh) {
  std::vector<size_t> all(static_cast<size_t>(mesh.nodes()));
  if (!config.enable_emergency_checkpoint) return all;
  const std::vector<size_t> own = saved_bytes_by_node(config, mesh);
  constexpr size_t kSaves = 2;
  for (size_t node = 0; node < all.size(); ++node) {
    all[node] = kSaves * own[node];
    if (all.size() > 1) all[node] += kSaves * own[(node + all.size() - 1) % all.size()];
  }
  return all;
}

size_t checkpoint_bytes(const TrainConfig& config) {
  TrainConfig one_rank = config;
  one_rank.mesh = MeshShape{};
  return saved_bytes(one_rank, mesh_of(one_rank.mesh), /*rank=*/0);
}

}  // namespace muster::trainer
