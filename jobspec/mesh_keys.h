// The keys of the mesh (MaxText's ici_… and dcn_…_parallelism) and of the batch, which the mesh cuts.
#pragma once

#include <cstdint>
#include <optional>

#include <absl/status/statusor.h>

#include "common/mesh.h"
#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// A mesh as keys and options have it: degrees may be -1, or anything else that is wrong.
struct WantedMesh {
  MeshShape shape;
  int32_t nodes = 1;
  int32_t ranks_per_node = 1;
};

// Without nodes or ranks the degrees say how many there are. InvalidArgument when there are too many.
absl::StatusOr<WantedMesh> read_mesh(SettingsReader& reader, std::optional<int32_t> nodes,
                                     std::optional<int32_t> ranks_per_node);

// What a slice of the mesh has of per_device_batch_size or global_batch_size, and the length of sequences. The reader's status says
// what is not a whole number of sequences.
void read_batch(SettingsReader& reader, const Mesh& mesh, trainer::TrainConfig& train);

}  // namespace muster::jobspec
