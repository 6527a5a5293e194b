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

StepSeconds step_seconds_of(const nlohmann::json& time) {
  const auto number = [](const nlohmann::json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found != object.end() && found->is_number() ? found->get<double>() : 0;
  };
  StepSeconds step{.all = number(time, "seconds")};
  if (!time.is_object() || !time.contains("parts")) return step;
  for (const nlohmann::json& part : time["parts"])
    if (part.is_object() && part.value("name", nlohmann::json()) == "optimizer")
      step.update += number(part, "seconds");
  return step;
}

double data_wait(const trainer::TrainConfig& config, double read_seconds, double step_seconds) {
  if (config.dataset_type == trainer::DatasetType::kSynthetic) return 0;
  return std::max(0.0, read_seconds - step_seconds);
}

StorageWaits storage_waits(const trainer::TrainConfig& config, const jobspec::Topology& topology,
                           const StepSeconds& step, double checkpoint_bytes) {
  StorageWaits waits;
  const Mesh mesh = trainer::mesh_of(config.mesh);
  const double tokens =
      static_cast<double>(jobspec::global_batch_size(mesh, config)) * config.max_target_length;
  // Nodes along other axes read the same sequences.
  double parts = 1;
  for (const MeshAxis axis : {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kExpert})
    parts *= config.mesh.dcn[static_cast<size_t>(axis)];
  waits.read_seconds = seconds_at_rate(kTokenBytes * tokens / parts, topology, "storage_gb_s");
  waits.data_seconds = data_wait(config, waits.read_seconds, step.all);
  // The ranks of one data coordinate save everything, and `dcn` divides them over the nodes.
  const auto data = static_cast<size_t>(MeshAxis::kData);
  const double nodes = static_cast<double>(mesh.nodes()) / config.mesh.dcn[data];
  const double ranks =
      static_cast<double>(mesh.ranks()) / (config.mesh.ici[data] * config.mesh.dcn[data]);
  const double copy = seconds_at_rate(checkpoint_bytes / ranks, topology, "host_gb_s");
  const double write = seconds_at_rate(checkpoint_bytes / nodes, topology, "storage_gb_s");
  if (config.async_checkpointing) {
    waits.save_stall_seconds = std::max(0.0, copy - (step.all - step.update));
    waits.save_seconds = copy + write;
  } else {
    waits.save_stall_seconds = waits.save_seconds = std::max(copy, write);
  }
  if (!config.enable_checkpointing || config.checkpoint_period <= 0) return waits;
  const auto period = static_cast<double>(config.checkpoint_period);
  const double between = period * (step.all + waits.data_seconds);
  const double rest = config.async_checkpointing
                          ? std::max(0.0, waits.save_seconds - waits.save_stall_seconds - between)
                          : 0;
  waits.checkpoint_seconds = (waits.save_stall_seconds + rest) / period;
  return waits;
}

}  // namespace muster::cli
