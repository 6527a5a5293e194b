// Pairs the timed operations of a step with the work that the forecast records for it. Pure.
#pragma once

#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/forecast/device_fit.h"
#include "trainer_core/forecast/op_timer.h"
#include "trainer_core/forecast/step_trace.h"

namespace muster::trainer {

// Pairs the calls of one step with the work that was recorded for it, in their order, and subtracts
// `overhead` (the seconds of a call that computes nothing) and the conversions that a GEMM of the
// backend includes. Returns Internal with the first difference if the step and the recording have
// different operations.
absl::StatusOr<std::vector<MeasuredWork>> pair_calls(const StepTrace& trace,
                                                     const std::vector<TimedCall>& calls,
                                                     double overhead, double memory_gb_s);

}  // namespace muster::trainer
