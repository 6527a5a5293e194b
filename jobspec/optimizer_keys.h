// The optimizer and schedule keys of MaxText → OptimizerConfig. MaxText gives schedule phases as
// fractions of its length, Pax as numbers of steps; the trainer gets steps.
#pragma once

#include <string>
#include <vector>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Reads everything that one update depends on for a given learning rate, thus not the schedule.
// Adds a warning per key that the user has set and that opt_type does not use. The reader keeps
// errors.
void read_optimizer(SettingsReader& reader, trainer::OptimizerConfig& optimizer,
                    std::vector<std::string>& warnings);

// Reads steps and the schedule. If a number of steps and MaxText's fraction have the same meaning,
// the one that the user has set wins; both together are an error.
void read_schedule(SettingsReader& reader, trainer::TrainConfig& train,
                   std::vector<std::string>& warnings);

}  // namespace muster::jobspec
