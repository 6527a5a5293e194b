// What no single size of a config shows: products of several that are each in range. Counted in floating point, because 64 bits
// would not hold all of them.
#pragma once

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// InvalidArgument with the sizes that make up a model of too many parameters. Each size is in range.
absl::Status check_parameter_count(const ModelConfig& model);
// The same for what a step keeps of its tokens on the way to the loss.
absl::Status check_activation_count(const TrainConfig& config);

}  // namespace muster::trainer
