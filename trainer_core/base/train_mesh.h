// The mesh of a training config: whether it fits the model, and what its axes make of a batch.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/mesh.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Checks degrees of at least 1 and a bounded product. InvalidArgument names the key.
absl::Status validate_mesh(const MeshShape& shape);

// Checks that the mesh can split the model and the batch's rows. Requires a valid model and shape.
// InvalidArgument names the conflicting keys and degrees that would work.
absl::Status validate_on_mesh(const TrainConfig& config);

// Requires a valid shape.
Mesh mesh_of(const MeshShape& shape);

// Ranks with different slices of the global batch differ along these axes. Slices are ordered by
// coordinates.
constexpr AxisSet kBatchAxes = {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kExpert};

struct BatchSlice {
  int32_t index = 0;
  int32_t count = 1;
};
BatchSlice batch_slice(const Mesh& mesh, int32_t rank);
// Returns the number of ranks that compute a slice together.
int32_t ranks_of_slice(const Mesh& mesh);

}  // namespace muster::trainer
