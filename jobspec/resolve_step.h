// key=value → one step of training (`muster debug step`), whose model and tokens are given. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// It may say of it: the optimizer, the policy of remat and threads_per_rank; all others have their defaults. InvalidArgument
// names a key that has no part in a step, or the nearest of an unknown one. Appends to `warnings`.
absl::StatusOr<trainer::TrainConfig> resolve_step(const std::vector<std::string>& overrides,
                                                  std::vector<std::string>& warnings);

}  // namespace muster::jobspec
