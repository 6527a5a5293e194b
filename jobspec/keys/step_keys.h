// The keys of the reactions to steps that are not finite and to spikes.
#pragma once

#include <string>
#include <vector>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Reads not_finite_policy with MaxText's names for it, max_rollbacks, and the keys of spikes. Adds
// a sentence to `warnings` if MaxText would do something else.
void read_step_rules(SettingsReader& reader, trainer::TrainConfig& train,
                     std::vector<std::string>& warnings);

// Adds a sentence to `warnings` if the job skips batches, but all batches are the same. Requires
// that the data is known.
void warn_of_same_batches(const trainer::TrainConfig& train, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
