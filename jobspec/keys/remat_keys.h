// The keys of rematerialisation, the recomputation of activations in the backward pass:
// remat_policy, and a key for each activation that remat_policy=custom may save.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Returns whether read_remat() reads `key`.
bool is_remat_key(std::string_view key);

// Reads the keys into `train`. Accepts MaxText's names of policies, including older names. Returns
// InvalidArgument for an unknown policy, for an unknown placement of an activation, and for
// contradictory placements. Warns of keys that the user has set and that have no effect.
absl::Status read_remat(SettingsReader& reader, trainer::TrainConfig& train,
                        std::vector<std::string>& warnings);

}  // namespace muster::jobspec
