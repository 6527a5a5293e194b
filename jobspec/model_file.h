// Model presets: models/<model_name>.yml in the folder of the root base.yml.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "jobspec/settings.h"

namespace muster::jobspec {

// Lays the model file's values over `settings`. Command line, environment and user file win for keys of a run
// (max_target_length); a key of the architecture (base_*, vocab_size, …) they may say only with the same value
// or with override_model_config=true. NotFound for an
// unknown model names the nearest; InvalidArgument names both values of a conflict.
absl::Status apply_model_file(const std::string& config_folder, std::string_view model_name,
                              bool override_model_config, Settings& settings);

}  // namespace muster::jobspec
