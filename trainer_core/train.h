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

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>

#include "common/exit_code.h"
#include "common/progress_page.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/local_checkpoints.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/step_log.h"
#include "trainer_core/stop_signals.h"

namespace muster::trainer {

// What a rank trains with. Everything outlives train().
struct TrainContext {
  ProcessGroups& groups;  // of the config's mesh
  ProgressWriter& page;
  std::ostream& out;                               // rank 0's lines
  std::ostream& err;                               // every rank's errors
  StopSignals& signals;                            // asked to checkpoint and leave (SIGTERM)
  int32_t threads = 1;                             // of the CPU, where there is no backend
  std::function<void(const StepRecord&)> on_step;  // may be empty; called on every rank
  CheckpointOwner owner = {};                      // as whom rank 0 takes the checkpoint directory
  std::function<void(const EvalRecord&)> on_evaluation = nullptr;  // as on_step
  LocalPlace local = {};  // where this rank's node keeps local checkpoints
  // Steps in a checkpoint that an earlier attempt of the job has told of: where there is none now, something is missing. 0: none is known.
  uint64_t known_checkpoint_step = 0;
  std::shared_ptr<Backend> backend = nullptr;  // whose memory `groups` know; null: the CPU's
};

// On the page, and in what profilers show. Any thread.
inline void enter_phase(const TrainContext& context, Phase phase) {
  context.page.set_phase(phase, monotonic_now());
  // Names are literals, and so C's strings.
  if (context.backend != nullptr) context.backend->enter_phase(phase_name(phase).data());
}

// Trains to the end, to a stop that any rank was asked for, or to an error, which is explained on `err`. Calls from
// several threads (ranks as threads) do not disturb each other.
ExitCode train(const TrainConfig& config, const TrainContext& context);

}  // namespace muster::trainer
