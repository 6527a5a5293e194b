// The rules that a model's experts add to those of mesh_rules.h for batches and meshes. The checks
// are pure arithmetic.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Checks two rules. With a kPax router and num_groups, each micro-batch of each rank must have the
// same number of complete groups: then tokens never compete across ranks, and the dropped tokens do
// not depend on the mesh. The rows that one rank's experts receive must be countable in 32 bits.
// Requires a valid model and mesh. Returns InvalidArgument with the conflicting keys and with
// values that would work.
absl::Status validate_experts(const TrainConfig& config);

// Returns the maximum number of rows that the experts of a rank can receive, divided by the number
// of the rank's own tokens. Rows come from all ranks that share the experts. Requires a valid model
// and mesh.
int64_t expert_rows_per_token(const TrainConfig& config);

}  // namespace muster::trainer
