// The optimizer's and the schedule's part of a config: keys with MaxText's names to OptimizerConfig. MaxText gives a schedule
// as fractions of its length, Pax as numbers of steps; the trainer gets steps.
#pragma once

#include <string>
#include <vector>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// What one update depends on when its rate is given: all but the schedule. Adds a warning for each key that the user has set
// and that opt_type makes meaningless. The reader remembers errors.
void read_optimizer(SettingsReader& reader, trainer::OptimizerConfig& optimizer,
                    std::vector<std::string>& warnings);

// steps and the schedule. Of a number of steps and MaxText's fraction that mean the same, the one wins that the user has
// set; both are an error.
void read_schedule(SettingsReader& reader, trainer::TrainConfig& train,
                   std::vector<std::string>& warnings);

}  // namespace muster::jobspec
