// The keys of the mesh (MaxText's ici_… and dcn_…_parallelism) and of the batch, which the mesh
// divides.
#pragma once

#include <cstdint>
#include <optional>

#include <absl/status/statusor.h>

#include "common/mesh.h"
#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// A requested mesh, from keys and options: degrees may be -1 or invalid.
struct RequestedMesh {
  MeshShape shape;
  int32_t nodes = 1;
  int32_t ranks_per_node = 1;
};

// If nodes or ranks per node are unset, they are computed from the degrees. If a degree inside a
// node is -1, a node then has one rank per GPU (`node_gpus`; 0: unknown, or none are used). Returns
// InvalidArgument for too many nodes or ranks.
absl::StatusOr<RequestedMesh> read_mesh(SettingsReader& reader, std::optional<int32_t> nodes,
                                        std::optional<int32_t> ranks_per_node,
                                        int32_t node_gpus = 0);

// Returns the number of nodes of a job whose keys leave a degree inside a node at -1: its ranks
// then depend on the nodes' GPUs. `nodes` as for read_mesh(). Nothing for other jobs, and if a key
// of the mesh is invalid, which read_mesh() reports.
std::optional<int32_t> nodes_of_open_mesh(const Settings& settings, std::optional<int32_t> nodes);

// Reads per_device_batch_size or global_batch_size into the batch of one slice of the mesh, and the
// sequence length. The reader keeps an error if the batch is not a whole number of sequences.
void read_batch(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train);

}  // namespace muster::jobspec
