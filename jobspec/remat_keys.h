// The keys that say what layers keep for their backward pass: remat_policy, and what remat_policy=custom reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Whether it is one of the keys that read_remat reads.
bool is_remat_key(std::string_view key);

// MaxText's names of policies, the older ones, too. InvalidArgument for a name that is none, a placement that is none, and
// placements that contradict each other. A warning says what the user has asked for without effect.
absl::Status read_remat(SettingsReader& reader, trainer::TrainConfig& train,
                        std::vector<std::string>& warnings);

}  // namespace muster::jobspec
