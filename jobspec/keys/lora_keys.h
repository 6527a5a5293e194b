// Translates enable_lora and the keys lora_… into a LoraConfig.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/model_config.h"

namespace muster::jobspec {

// Fills in `model.lora`. Requires that the model's sizes have been read. Returns InvalidArgument,
// with the nearest name, for a word of lora_targets that is no projection. trainer::validate()
// checks the numbers later.
absl::Status read_lora(SettingsReader& reader, trainer::ModelConfig& model,
                       std::vector<std::string>& warnings);

}  // namespace muster::jobspec
