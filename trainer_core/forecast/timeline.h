// A picture of a forecast step: a Chrome trace (chrome://tracing, Perfetto) or an SVG. Pure.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/forecast/step_time.h"

namespace muster::trainer {

// Returns the content of a file of this name: a Chrome trace if it ends in ".json", a picture if it
// ends in ".svg", InvalidArgument otherwise. Lanes are the computation and the communication of a
// rank of the first stage; in a pipeline, one more lane per stage has its passes. If the step has
// many micro-batches, the lanes of the rank have a few of them (StepModel::record).
absl::StatusOr<std::string> timeline(const StepModel& model, const StepMachine& machine,
                                     const std::string& path);

}  // namespace muster::trainer
