// The keys of periodic stack traces.
#pragma once

#include <string>
#include <vector>

#include "jobspec/settings/settings_reader.h"
#include "muster/v1/muster.pb.h"

namespace muster::jobspec {

// Reads the keys into `traces`. Stores errors in `reader` (SettingsReader::status()).
void read_stack_traces(SettingsReader& reader, v1::StackTraces& traces,
                       std::vector<std::string>& warnings);

}  // namespace muster::jobspec
