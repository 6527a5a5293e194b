// The GPUs and the CPU speed that a job on this machine can use. They are read for jobspec, which
// is pure.
#pragma once

#include <optional>
#include <string>

#include "jobspec/resolve.h"

namespace muster::cli {

// Returns whether the ranks of this config use GPUs where there are some.
bool may_use_gpus(const jobspec::Config& config);

// Fills in node_gpus (with `counts_gpus`) and cpu_bfloat16_speed where the config depends on them.
// Does nothing for jobs of other machines. Starts muster-worker (some tens of milliseconds) if
// ranks may use GPUs, and muster-trainer (some tenths of a second) in the first call on a kind of
// CPU: the measurement is kept in the user's cache, so that all later runs on this machine make the
// same choice.
void describe_this_machine(const jobspec::Config& config, bool counts_gpus,
                           jobspec::LaunchOptions& options);

// Returns the kept measurement, for processors with this `cpuinfo` (/proc/cpuinfo); measures
// without one. Returns nothing if it cannot be measured.
std::optional<double> cpu_bfloat16_speed(const std::string& cpuinfo);

}  // namespace muster::cli
