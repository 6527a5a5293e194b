// The keys of the types of computation and storage. The default of `dtype` depends on the CPU: the
// default of MaxText, Pax and AXLearn is bfloat16, but on many CPUs it is slower than float32.
// Muster chooses once, when the job is resolved, and stores the choice in the job's config, so that
// it is the same for all ranks and attempts. All functions are pure.
#pragma once

#include <string>
#include <vector>

#include "jobspec/resolve.h"
#include "jobspec/settings/settings_reader.h"

namespace muster::jobspec {

// Returns whether the choice depends on LaunchOptions::cpu_bfloat16_speed, the CPU's speed of
// bfloat16 relative to float32: if ranks run on this machine's CPU, or on that of a plan, and the
// user has not set `dtype`.
bool needs_cpu_speed(const Config& config, const LaunchOptions& options);

// Reads `dtype`, `weight_dtype` and `matmul_precision`; accepts JAX's other names of the latter,
// tensorfloat32 and float32. Requires that train.hardware is set. If bfloat16 is only the default
// of `dtype`, replaces it by float32 and adds a warning in two cases: bfloat16 is slower on the
// CPU, or hardware=cpu and the CPU has not been measured. A plan has a warning with the choice in
// any case, because a run on another machine may choose otherwise. Sets the type of the first
// moment, which the key mu_dtype may replace, to weight_dtype.
void read_precision(SettingsReader& reader, const LaunchOptions& options,
                    trainer::TrainConfig& train, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
