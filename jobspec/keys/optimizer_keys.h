// Translates the keys of the optimizer and of the learning rate's schedule. MaxText states the
// schedule's phases as fractions of its length, Pax as numbers of steps; the trainer receives
// numbers of steps.
#pragma once

#include <string>
#include <vector>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Reads all keys of the optimizer except for the schedule. Adds a warning for each key that the
// user has set and that the chosen opt_type does not use. Stores errors in `reader`.
void read_optimizer(SettingsReader& reader, trainer::OptimizerConfig& optimizer,
                    std::vector<std::string>& warnings);

// Reads the number of steps and the schedule. A phase may be set as a number of steps or as
// MaxText's fraction. The one that the user has set wins over base.yml's; if the user sets both,
// stores an error in `reader`.
void read_schedule(SettingsReader& reader, trainer::TrainConfig& train,
                   std::vector<std::string>& warnings);

}  // namespace muster::jobspec
