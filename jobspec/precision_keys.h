// The keys of the types of computation and storage. The default of `dtype` depends on the CPU:
// bfloat16 is MaxText's, Pax's and AXLearn's, but on many CPUs it is slower than float32. The
// choice is made once, when the job is resolved, and travels in its config: all ranks and all
// attempts have it. Pure.
#pragma once

#include <string>
#include <vector>

#include "jobspec/resolve.h"
#include "jobspec/settings_reader.h"

namespace muster::jobspec {

// True if ranks run on this machine's CPU and the user has not set `dtype`: then
// LaunchOptions::cpu_bfloat16_speed, the speed of bfloat16 relative to float32, decides.
bool needs_cpu_speed(const Config& config, const LaunchOptions& options);

// Reads `dtype`, `weight_dtype` and `matmul_precision`; the latter with JAX's other names,
// tensorfloat32 and float32. Requires train.hardware. A default dtype of bfloat16 becomes float32,
// with a warning, on a CPU on which it is slower, and with hardware=cpu on one that has not been
// measured. The first moment's type, which mu_dtype may replace, becomes weight_dtype.
void read_precision(SettingsReader& reader, const LaunchOptions& options,
                    trainer::TrainConfig& train, std::vector<std::string>& warnings);

}  // namespace muster::jobspec
