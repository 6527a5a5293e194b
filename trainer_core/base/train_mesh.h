// The mesh of a training config: whether it fits the model, and what its axes make of a batch.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "common/mesh.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Degrees of at least 1, not too many in all. InvalidArgument names the key.
absl::Status validate_mesh(const MeshShape& shape);

// Whether the mesh can split what the model has, and the batch's rows. Requires a valid model and shape; InvalidArgument names the
// keys that disagree, and the degrees that would do.
absl::Status validate_on_mesh(const TrainConfig& config);

// Requires a valid shape.
Mesh mesh_of(const MeshShape& shape);

// Ranks with different slices of the global batch differ along these axes. Slices are in the order of coordinates.
constexpr AxisSet kBatchAxes = {MeshAxis::kData, MeshAxis::kFsdp, MeshAxis::kExpert};

struct BatchSlice {
  int32_t index = 0;
  int32_t count = 1;
};
BatchSlice batch_slice(const Mesh& mesh, int32_t rank);
// How many ranks compute a slice together.
int32_t ranks_of_slice(const Mesh& mesh);

}  // namespace muster::trainer
