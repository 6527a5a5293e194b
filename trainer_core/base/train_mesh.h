// The mesh of a training config: its validation, and the slices into which it divides a global
// batch.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/job/mesh.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Checks that each degree is at least 1 and that their product is bounded. Returns InvalidArgument
// with the key.
absl::Status validate_mesh(const MeshShape& shape);

// Checks that the mesh can split the model and the rows of a batch. Requires a valid model and
// shape. Returns InvalidArgument with the conflicting keys and with degrees that would work.
absl::Status validate_on_mesh(const TrainConfig& config);

// Returns the mesh of this shape over all its nodes and ranks. Requires a valid shape.
Mesh mesh_of(const MeshShape& shape);

// The axes that divide the global batch into slices. Ranks whose coordinates on these axes are
// equal compute the same slice together; slices are numbered in the order of these coordinates.
constexpr AxisSet kBatchAxes = {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kExpert};

// The slice of the global batch that a rank computes.
struct BatchSlice {
  int32_t index = 0;
  int32_t count = 1;
};
// Returns the slice that `rank` computes.
BatchSlice batch_slice(const Mesh& mesh, int32_t rank);
// Returns the number of ranks that compute one slice together.
int32_t ranks_of_slice(const Mesh& mesh);

}  // namespace muster::trainer
