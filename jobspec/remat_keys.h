// The keys of rematerialisation: remat_policy, and the activations that remat_policy=custom saves.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// True for the keys that read_remat() reads.
bool is_remat_key(std::string_view key);

// Accepts MaxText's policy names, including older ones. InvalidArgument for an unknown policy, an
// unknown placement, and contradictory placements. Warns about keys that the user has set without
// effect.
absl::Status read_remat(SettingsReader& reader, trainer::TrainConfig& train,
                        std::vector<std::string>& warnings);

}  // namespace muster::jobspec
