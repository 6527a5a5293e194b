// Which batches and meshes a model's experts allow, beside mesh_rules.h's axes. Pure arithmetic.
#pragma once

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Of kPax routers with num_groups: each micro-batch of each rank has as many whole groups, so that nobody competes across ranks and
// drops do not depend on the mesh. And the rows that one rank's experts may get are counted in 32 bits. Requires a valid model and
// mesh; InvalidArgument names the keys that disagree, and what would do.
absl::Status validate_experts(const TrainConfig& config);

}  // namespace muster::trainer
