// When each piece of work of a trace runs: a list schedule over the streams of a rank. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trainer_core/forecast/step_cost.h"
#include "trainer_core/forecast/step_trace.h"

namespace muster::trainer {

// Seconds since the start of the step.
struct WorkTime {
  double begin = 0;
  double end = 0;  // includes the gap after a kernel
};

// The parts of a step's time, in seconds, by name. StepTimeForecast::parts (step_time.h) has them
// in the order of a waterfall.
using StepParts = std::map<std::string, double>;

// The parts of a step except the exposed communication, whose names are "communication: " and the
// axes of the group. "ideal GEMMs" is the time of the GEMMs of the forward and backward pass at the
// device's peak; recomputed layers are a part of their own.
inline constexpr const char* kIdealGemms = "ideal GEMMs";
inline constexpr const char* kGemmLoss = "GEMM inefficiency";
inline constexpr const char* kAttentionPart = "attention";
inline constexpr const char* kMemoryKernels = "memory-bound kernels";
inline constexpr const char* kRecomputation = "recomputation";
inline constexpr const char* kOffloading = "offloading";
inline constexpr const char* kGaps = "gaps between kernels";
inline constexpr const char* kOverlapSlowdown = "slowdown by overlapped communication";
inline constexpr const char* kBubble = "pipeline bubble";
inline constexpr const char* kUpdatePart = "optimizer";
inline constexpr const char* kHostTime = "data and host";
inline constexpr const char* kStragglers = "late ranks";

// The schedule of one rank that waits for no other rank.
struct StepSchedule {
  std::vector<WorkTime> streams[kStepStreams];
  std::vector<double> pass_ends;      // one per pass, on the computation
  std::vector<StepParts> pass_parts;  // one per pass
  StepParts tail_parts;               // after the passes
  double end = 0;
  // Communication that runs concurrently with the computation, and the part of it for which the
  // computation waits.
  double concurrent = 0, waited = 0;
};

StepSchedule schedule_step(const StepTrace& trace, const StepCost& cost);

}  // namespace muster::trainer
