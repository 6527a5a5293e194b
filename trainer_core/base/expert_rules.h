// Which batches and meshes a model's experts allow, in addition to the axes of mesh_rules.h. Pure
// arithmetic.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Checks two rules. kPax routers with num_groups: each micro-batch of each rank has the same number
// of complete groups, so tokens never compete across ranks and drops do not depend on the mesh. The
// rows of one rank's experts are counted in 32 bits. Requires a valid model and mesh.
// InvalidArgument names the conflicting keys and values that would work.
absl::Status validate_experts(const TrainConfig& config);

// Returns the maximum of rows that a rank's experts receive per token of the rank, from all ranks
// that share experts. Requires a valid model and mesh.
int64_t expert_rows_per_token(const TrainConfig& config);

}  // namespace muster::trainer
