// What this version cannot do: values that are refused, and keys that have no effect.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

#include "jobspec/settings.h"

namespace muster::jobspec {

// InvalidArgument for the first restricted key with a value that cannot be run; it says which values can.
absl::Status check_restrictions(const Settings& settings);

// One sentence for each key without effect that somebody asked for, other than in a base.yml.
std::vector<std::string> warnings_for(const Settings& settings, const Settings& base);

}  // namespace muster::jobspec
