// The training loop of one rank.
//
//   start: config → do all ranks have it? → plan and memory → parameters (seed, or newest checkpoint) → do all ranks agree?
//   step:  batch → forward and backward, gradients added up beside them → one all-reduce of loss, weight, votes and squares →
//          clipping → optimizer → step line → [evaluation] → [checkpoint]
//
// A step whose loss or gradient is not finite is not applied; not_finite_policy.h says what is done instead. Where its batch is
// passed over, the step is made from the next one, and checkpoints keep the position in the data beside the number of steps.
//
// Ranks compare their configs before anything else (agreement.h). Those along data hold the same numbers, of which the first save
// (checkpointing.h); rank 0 alone writes lines. A rank that is asked to stop votes in the sums of a step (step_tail.h); a step that takes too long
// for that is left in its middle (stop_signals.h).
#pragma once

#include "common/exit_code.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/rank/train_context.h"

namespace muster::trainer {

// Trains to the end, to a stop that any rank was asked for, or to an error, which is explained on `err`. Calls from
// several threads (ranks as threads) do not disturb each other.
ExitCode train(const TrainConfig& config, const TrainContext& context);

}  // namespace muster::trainer
