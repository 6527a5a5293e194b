// Records the work of a training step (step_trace.h): runs the trainer's own code of a step on a
// backend that computes nothing and on process groups that send nothing. The memory of the backend
// is reserved address space, so that a step of any size can be recorded.
#pragma once

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/forecast/step_trace.h"

namespace muster::trainer {

// Records one step of a rank of the config's mesh, for a GPU: all of its passes, the reduction and
// the update. The number of micro-batches is that of the config. The result depends on the config
// and the rank only. Rows of experts are assumed to be spread evenly.
//
// Takes a few ms per 1,000 pieces of work. Returns ResourceExhausted if the address space for the
// rank's memory plan cannot be reserved.
absl::StatusOr<StepTrace> record_step(const TrainConfig& config, int32_t rank);

}  // namespace muster::trainer
