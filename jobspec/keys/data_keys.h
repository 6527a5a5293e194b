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

// Returns whether the job only evaluates (eval_only).
bool is_evaluation(SettingsReader& reader);
// Completes the config of such a job, and leaves others unchanged: it has no steps and no
// checkpoints, and it evaluates load_parameters_path, or the newest checkpoint of the run if the
// user has not set that key. With adapters it evaluates load_parameters_path with those of the run,
// unless lora_restore_path names others. Requires that checkpoint_directory is set. Returns an
// error if neither is given.
absl::Status set_evaluation_only(SettingsReader& reader, trainer::TrainConfig& train,
                                 std::vector<std::string>& warnings);

}  // namespace muster::jobspec
