// Profiles of this process, taken with gperftools. Without it, as in builds with sanitizers, the
// functions return FailedPrecondition.
#pragma once

#include <stop_token>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/time/time.h"

namespace muster::coordinator {

// The time of a CPU profile. Its memory grows with it: at most 50 KB per second and busy CPU.
constexpr Duration kProfileTimeMin = std::chrono::seconds(1);
constexpr Duration kProfileTimeMax = std::chrono::seconds(300);

// From now on the allocator records the stack of one allocation per 512 KiB, at a cost below 1 in
// 1000 of the CPU time, so that a heap profile also has what was allocated long ago. Called once,
// at the process's start. TCMALLOC_SAMPLE_PARAMETER in the environment has precedence.
void start_heap_samples();

// Samples the stacks of all threads a hundred times per second of CPU time, and returns them in
// pprof's format. Blocks for `time`, or until `stop` is requested, which returns Cancelled. One
// caller at a time. Nothing is written to a disk.
absl::StatusOr<std::string> cpu_profile(Duration time, const std::stop_token& stop);

// Returns the sampled allocations that are in use, in pprof's format.
absl::StatusOr<std::string> heap_profile();

}  // namespace muster::coordinator
