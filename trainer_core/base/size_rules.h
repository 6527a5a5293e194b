// Checks of products of config sizes. Each size alone is in range, but a product can overflow 64
// bits, so products are computed in floating point.
#pragma once

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Returns InvalidArgument with the model's sizes if it has too many parameters. Requires that each
// size is in range.
absl::Status check_parameter_count(const ModelConfig& model);
// Returns InvalidArgument with the sizes if the activations of a step, up to the loss, have too
// many elements. Requires that each size is in range.
absl::Status check_activation_count(const TrainConfig& config);

}  // namespace muster::trainer
