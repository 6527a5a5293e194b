// Translates the key quantization and related keys into a QuantizationConfig.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings/settings_reader.h"
#include "trainer_core/base/quantization.h"

namespace muster::jobspec {

// Fills in `quantization`. Returns InvalidArgument, with a replacement, for a value of MaxText that
// Muster does not support. trainer::validate() checks the numbers later.
absl::Status read_quantization(SettingsReader& reader, trainer::QuantizationConfig& quantization,
                               std::vector<std::string>& warnings);

}  // namespace muster::jobspec
