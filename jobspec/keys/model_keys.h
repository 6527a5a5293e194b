// Translates the model's keys into a ModelConfig: decoder_block and the keys that modify it.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Fills in `model`. Returns InvalidArgument, with the keys, if keys are incompatible.
// trainer::validate() checks the sizes later.
absl::Status read_model(SettingsReader& reader, trainer::ModelConfig& model,
                        std::vector<std::string>& warnings);

// Reads the key dtype, the type in which the model computes.
void read_dtype(SettingsReader& reader, trainer::ComputeType& dtype);

}  // namespace muster::jobspec
