// The rules of the reactions to steps that are not finite and to spikes.
#pragma once

#include <cstdint>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The maximum of skip_step_interval. Checkpoints store two numbers per step of the interval in
// their manifests, some 3 MB.
constexpr int64_t kSpikeIntervalMax = 65'536;

// Checks the settings of not_finite_policy and of spikes. Returns InvalidArgument with the keys as
// a user types them.
absl::Status validate_step_rules(const TrainConfig& config);

}  // namespace muster::trainer
