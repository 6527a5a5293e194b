// The model's keys → ModelConfig: what a decoder_block stands for, and how the other keys change it.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Fills in `model`; sizes are judged later, by trainer::validate(). InvalidArgument names the keys that cannot go together.
absl::Status read_model(SettingsReader& reader, trainer::ModelConfig& model,
                        std::vector<std::string>& warnings);

// dtype: what the model computes in.
void read_dtype(SettingsReader& reader, trainer::ComputeType& dtype);

}  // namespace muster::jobspec
