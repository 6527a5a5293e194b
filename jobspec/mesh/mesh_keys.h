// The keys of the mesh (MaxText's ici_… and dcn_…_parallelism) and of the batch, which the mesh
// divides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <absl/status/statusor.h>

#include "common/job/mesh.h"
#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// The mesh that the keys and options request. Its degrees may be -1 or invalid.
struct RequestedMesh {
  MeshShape shape;
  MeshShape stated;  // the degrees as the keys give them; `shape` may change later
  int32_t nodes = 1;
  int32_t ranks_per_node = 1;
};

// Reads the mesh. Computes the number of nodes or of ranks per node from the degrees if it is
// unset. If a degree inside a node is -1 and ranks per node are unset, a node has one rank per GPU.
// `node_gpus`: number of GPUs; 0: unknown or unused. Returns InvalidArgument for too many nodes or
// ranks.
absl::StatusOr<RequestedMesh> read_mesh(SettingsReader& reader, std::optional<int32_t> nodes,
                                        std::optional<int32_t> ranks_per_node,
                                        int32_t node_gpus = 0);

// Returns the number of nodes of a job whose keys leave a degree inside a node at -1: the number of
// its ranks then depends on the GPUs of the nodes. `nodes`: as for read_mesh(). Returns nullopt for
// other jobs, and if a key of the mesh is invalid, which read_mesh() reports.
std::optional<int32_t> nodes_of_open_mesh(const Settings& settings, std::optional<int32_t> nodes);

// Reads the sequence length, and per_device_batch_size or global_batch_size, from which it computes
// the batch of one data-parallel slice of the mesh. Stores an error in `reader` if that batch is
// not a whole number of sequences.
void read_batch(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train);

// Returns the number of sequences of all ranks in a step.
int64_t global_batch_size(const Mesh& mesh, const trainer::TrainConfig& train);

// Returns the keys, or the flags of Pax, that change a command's mesh to `near`. `stated` has the
// degrees that the command sets. The result contains "KEY=1" for a degree of 1 in `near` that the
// command's keys would not give.
std::string replacing_mesh(const MeshShape& near, const MeshShape& stated,
                           const Settings& settings);

}  // namespace muster::jobspec
