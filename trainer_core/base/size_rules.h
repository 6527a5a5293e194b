// Checks products of config sizes that are each in range. Computed in floating point, because 64
// bits could overflow.
#pragma once

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Returns InvalidArgument with the sizes that give the model too many parameters. Requires each
// size in range.
absl::Status check_parameter_count(const ModelConfig& model);
// The same for the activations of a step's tokens up to the loss.
absl::Status check_activation_count(const TrainConfig& config);

}  // namespace muster::trainer
