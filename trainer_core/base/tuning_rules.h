// The rules of best evaluations, early stopping and fine-tuning.
#pragma once

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// Checks the settings of early stopping, best checkpoints, SFT and DPO. Returns InvalidArgument
// with the keys as a user types them.
absl::Status validate_tuning(const TrainConfig& config);

}  // namespace muster::trainer
