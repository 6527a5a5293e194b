// Checks settings against the limits of this version: unsupported values, and keys without effect.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings/settings.h"

namespace muster::jobspec {

// Returns InvalidArgument, with the supported values, for the first restricted key that has an
// unsupported value.
absl::Status check_restrictions(const Settings& settings);

// Replaces values of MaxText that have an equivalent in Muster: hardware=gpu_multiprocess becomes
// gpu, and hardware=tpu becomes auto, with a warning. Returns the warnings.
std::vector<std::string> accept_spellings(Settings& settings);

// Checks the values of keys without effect, such as `attention`. Returns InvalidArgument, with the
// nearest valid value, for a value that MaxText does not define.
absl::Status check_names(const Settings& settings);

// Returns a sentence for each key without effect that was set outside of a base.yml, or is one of
// `edits` (Config::edits).
std::vector<std::string> warnings_for(const Settings& settings, const Settings& base,
                                      const KeySet& edits);

}  // namespace muster::jobspec
