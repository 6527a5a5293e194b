// The training loop of a rank. Its phases are:
//
//   start: check that all ranks have the same config → plan and memory → parameters (from a seed or
//          the newest checkpoint) → check that all ranks have the same parameters
//   step:  batch → forward and backward, with gradients reduced in parallel → one all-reduce of the
//          loss, the weight, the votes to stop or to save, and the squared gradient norm (StepTail)
//          → clipping → optimizer → step line → [evaluation] → [checkpoint]
//
// A run with steps=0 evaluates the loaded parameters once and takes no step.
//
// A step whose loss or gradient is not finite is not applied, and spikes may take the training back
// (step_guard.h). If a batch is skipped, the step is computed from the next batch. So checkpoints
// store the position in the data in addition to the number of steps.
//
// Ranks compare their configs before anything else (agreement.h). Ranks that differ only along the
// data axis have the same state, and the first of them saves it (checkpointing.h). Only rank 0
// prints lines. After a stop signal, a rank adds its vote to the sums that the step reduces
// (step_tail.h). A step that takes too long is abandoned (stop_signals.h).
#pragma once

#include "common/process/exit_code.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/rank/train_context.h"

namespace muster::trainer {

// Trains until the last step, until any rank receives a signal to stop, or until an error, which is
// printed to `context.err`. Returns the exit code of the rank. Thread-safe: ranks may be threads of
// one process.
ExitCode train(const TrainConfig& config, const TrainContext& context);

}  // namespace muster::trainer
