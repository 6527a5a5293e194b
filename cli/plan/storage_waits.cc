#include "cli/plan/storage_waits.h"

#include <algorithm>
#include <string>

#include "jobspec/mesh/mesh_keys.h"
#include "trainer_core/base/train_mesh.h"

namespace muster::cli {
namespace {

// Shards have 2 or 4 bytes.
constexpr double kTokenBytes = 4;

// Returns the time to move the bytes at the topology's bandwidth; 0 if it is not known.
double seconds_at_rate(double bytes, const jobspec::Topology& topology, const std::string& key) {
  constexpr double kGiga = 1e9;
  const auto found = topology.numbers.find(key);
  return found == topology.numbers.end() || found->second <= 0 ? 0
                                                               : bytes / (found->second * kGiga);
}

}  // namespace

StorageWaits storage_waits(const trainer::TrainConfig& config, const jobspec::Topology& topology,
                           double step_seconds, double checkpoint_bytes) {
  StorageWaits waits;
  const Mesh mesh = trainer::mesh_of(config.mesh);
  if (config.dataset_type != trainer::DatasetType::kSynthetic) {
    const double tokens =
        static_cast<double>(jobspec::global_batch_size(mesh, config)) * config.max_target_length;
    // Nodes along other axes read the same sequences.
    double parts = 1;
    for (const MeshAxis axis : {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kExpert})
      parts *= config.mesh.dcn[static_cast<size_t>(axis)];
    const double read = seconds_at_rate(kTokenBytes * tokens / parts, topology, "storage_gb_s");
    waits.data_seconds = std::max(0.0, read - step_seconds);
  }
  // The ranks of one data coordinate save everything, and `dcn` divides them over the nodes.
  const auto data = static_cast<size_t>(MeshAxis::kData);
  const double nodes = static_cast<double>(mesh.nodes()) / config.mesh.dcn[data];
  const double ranks =
      static_cast<double>(mesh.ranks()) / (config.mesh.ici[data] * config.mesh.dcn[data]);
  const double copy = seconds_at_rate(checkpoint_bytes / ranks, topology, "host_gb_s");
  const double write = seconds_at_rate(checkpoint_bytes / nodes, topology, "storage_gb_s");
  waits.save_stall_seconds = config.async_checkpointing ? copy : std::max(copy, write);
  if (!config.enable_checkpointing || config.checkpoint_period <= 0) return waits;
  const auto period = static_cast<double>(config.checkpoint_period);
  const double between = period * (step_seconds + waits.data_seconds);
  const double rest = config.async_checkpointing ? std::max(0.0, write - between) : 0;
  waits.checkpoint_seconds = (waits.save_stall_seconds + rest) / period;
  return waits;
}

}  // namespace muster::cli
