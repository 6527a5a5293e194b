// The keys of data, epochs and evaluation: the training data, its format, and the held-out part.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Requires that the batch size has been read: it is the default for evaluation. Paths stay as
// written.
absl::Status read_data(SettingsReader& reader, trainer::TrainConfig& train,
                       std::vector<std::string>& warnings);

}  // namespace muster::jobspec
