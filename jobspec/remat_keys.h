// remat_policy by MaxText's names → what is kept of a layer for the backward pass.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings_reader.h"
#include "trainer_core/base/train_config.h"

namespace muster::jobspec {

// Adds a warning for a policy that runs as another one. InvalidArgument names the nearest of an unknown one.
absl::Status read_remat(SettingsReader& reader, trainer::RematPolicy& policy,
                        std::vector<std::string>& warnings);

}  // namespace muster::jobspec
