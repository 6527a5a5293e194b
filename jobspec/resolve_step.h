// Resolves the key=value words of `muster debug step`, which runs one training step on a given
// model and tokens. Pure.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Returns the config of the step. Accepts the keys of the optimizer, remat_policy and
// threads_per_rank; all other settings have their defaults. Returns InvalidArgument for a key that
// a step does not use, and for an unknown key, with the nearest known one. Appends warnings to
// `warnings`.
absl::StatusOr<trainer::TrainConfig> resolve_step(const std::vector<std::string>& overrides,
                                                  std::vector<std::string>& warnings);

}  // namespace muster::jobspec
