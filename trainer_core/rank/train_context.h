// What a rank trains with: its groups, its page, its outputs and its surroundings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "common/progress_page.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/stop_signals.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Where a rank's node keeps local checkpoints.
struct LocalPlace {
  std::string folder = {};  // for this job alone
  std::string host = {};    // host_identity()
};

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

}  // namespace muster::trainer
