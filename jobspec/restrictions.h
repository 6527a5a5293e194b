// The limits of this version: unsupported values, and keys without effect.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings.h"

namespace muster::jobspec {

// InvalidArgument for the first restricted key with an unsupported value; it names the supported
// ones.
absl::Status check_restrictions(const Settings& settings);

// Replaces MaxText's other spellings of a supported value: hardware=gpu_multiprocess is gpu, and
// hardware=tpu is auto, with a warning. Returns the warnings.
std::vector<std::string> accept_spellings(Settings& settings);

// Checks the values of keys without effect, such as `attention`. Returns InvalidArgument, with the
// nearest valid value, for one that MaxText does not define.
absl::Status check_names(const Settings& settings);

// Returns one sentence per key without effect that was set outside of a base.yml.
std::vector<std::string> warnings_for(const Settings& settings, const Settings& base);

}  // namespace muster::jobspec
