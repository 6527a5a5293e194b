// Which batches and meshes a model's experts allow, beside mesh_rules.h's axes. Pure arithmetic.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Of kPax routers with num_groups: each micro-batch of each rank has as many whole groups, so that nobody competes across ranks and
// drops do not depend on the mesh. And the rows that one rank's experts may get are counted in 32 bits. Requires a valid model and
// mesh; InvalidArgument names the keys that disagree, and what would do.
absl::Status validate_experts(const TrainConfig& config);

// The rows that a rank's experts may get for each token that it has, of the tokens of all ranks that share experts out. Requires a valid
// model and mesh.
int64_t expert_rows_per_token(const TrainConfig& config);

}  // namespace muster::trainer
