// Measures this machine's GPUs and CPU speed for jobspec, whose functions are pure and cannot do
// so.
#pragma once

#include <optional>
#include <string>

#include "jobspec/resolve.h"

namespace muster::cli {

// Returns whether the ranks of this config use GPUs where there are some.
bool may_use_gpus(const jobspec::Config& config);

// Fills in node_gpus (with `counts_gpus`) and cpu_bfloat16_speed of `options` if the config depends
// on them. Does nothing for a job on other machines, except for a plan for CPUs: its speed is that
// of the plan or, if that is unset, this machine's. Blocks: if ranks may use GPUs, runs
// muster-worker (some tens of milliseconds); in the first call on a kind of CPU, runs
// muster-trainer (some tenths of a second) and stores the measurement in the user's cache, so that
// all later runs on this machine make the same choice.
void describe_this_machine(const jobspec::Config& config, bool counts_gpus,
                           jobspec::LaunchOptions& options);

// Returns the content of /proc/cpuinfo.
std::string own_cpuinfo();

// Returns the speed of bfloat16 relative to float32: the stored measurement for a machine with this
// `cpuinfo` (the content of /proc/cpuinfo), or a new measurement, which it stores. Returns nullopt
// if the speed cannot be measured.
std::optional<double> cpu_bfloat16_speed(const std::string& cpuinfo);

}  // namespace muster::cli
