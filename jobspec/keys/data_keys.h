// The keys of the training data and its format, of epochs, and of the evaluation data.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Reads the keys into `train`. Paths stay as the user wrote them; hf_path is a folder if there is
// one below `working_directory`, and otherwise a name on the Hugging Face Hub. Requires that the
// batch size has been read, because it is the default for evaluation.
absl::Status read_data(SettingsReader& reader, const std::string& working_directory,
                       trainer::TrainConfig& train, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
