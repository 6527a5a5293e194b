// The training loop of one rank.
//
//   start: config → check that all ranks have it → plan and memory → parameters (seed, or newest
//          checkpoint) → check that all ranks agree
//   step:  batch → forward and backward, with gradients reduced in parallel → one all-reduce of
//          loss, weight, votes and squares → clipping → optimizer → step line → [evaluation] →
//          [checkpoint]
//
// A step whose loss or gradient is not finite is not applied; not_finite_policy.h describes what
// happens instead. If its batch is skipped, the step is computed from the next batch, and
// checkpoints store the position in the data beside the number of steps.
//
// Ranks compare their configs before anything else (agreement.h). Ranks along data hold the same
// state, and the first of them saves it (checkpointing.h). Only rank 0 prints lines. A rank that is
// signalled to stop votes in the step's reduced sums (step_tail.h); a step that takes too long for
// that is abandoned (stop_signals.h).
#pragma once

#include "common/exit_code.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/rank/train_context.h"

namespace muster::trainer {

// Trains until the end, until any rank is signalled to stop, or until an error, which is printed to
// `context.err`. Thread-safe: ranks may be threads of one process.
ExitCode train(const TrainConfig& config, const TrainContext& context);

}  // namespace muster::trainer
