// key=value → one training step (`muster debug step`) on a given model and tokens. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Accepts the optimizer, the remat policy and threads_per_rank; other keys have their defaults.
// InvalidArgument names a key that a step does not use, or the key nearest to an unknown one.
// Appends to `warnings`.
absl::StatusOr<trainer::TrainConfig> resolve_step(const std::vector<std::string>& overrides,
                                                  std::vector<std::string>& warnings);

}  // namespace muster::jobspec
