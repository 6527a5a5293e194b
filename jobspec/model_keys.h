// The model's keys → ModelConfig: the meaning of decoder_block, and the keys that modify it.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Fills in `model`; trainer::validate() checks the sizes later. InvalidArgument names the keys that
// are incompatible.
absl::Status read_model(SettingsReader& reader, trainer::ModelConfig& model,
                        std::vector<std::string>& warnings);

// Reads dtype, the type of the model's computation.
void read_dtype(SettingsReader& reader, trainer::ComputeType& dtype);

}  // namespace muster::jobspec
