// Everything that a rank trains with: its groups, progress page, outputs and environment.
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

// The folder of a node's local checkpoints.
struct LocalStorage {
  std::string folder = {};  // used by this job only
  std::string host = {};    // host_identity()
};

// Everything a rank trains with. All referenced objects outlive train().
struct TrainContext {
  ProcessGroups& groups;  // of the config's mesh
  ProgressWriter& page;
  std::ostream& out;     // receives rank 0's lines
  std::ostream& err;     // receives every rank's errors
  StopSignals& signals;  // requests to checkpoint and leave (SIGTERM)
  int32_t threads = 1;   // CPU threads, if there is no backend
  // Called on every rank after each step. May be empty.
  std::function<void(const StepRecord&)> on_step;
  // The owner as which rank 0 takes the checkpoint directory.
  CheckpointOwner owner = {};
  // Called on every rank after each evaluation. May be empty.
  std::function<void(const EvalRecord&)> on_evaluation = nullptr;
  // The local checkpoints of this rank's node.
  LocalStorage local = {};
  // The steps in the newest checkpoint that an earlier attempt of the job has reported. If no
  // checkpoint has them now, something is missing. 0: none is known.
  uint64_t known_checkpoint_step = 0;
  // The backend, whose memory `groups` are set up for; null: the CPU's.
  std::shared_ptr<Backend> backend = nullptr;
};

// Shows the phase on the progress page and in profilers. Thread-safe.
inline void enter_phase(const TrainContext& context, Phase phase) {
  context.page.set_phase(phase, monotonic_now());
  // Phase names are literals, hence terminated by NUL.
  if (context.backend != nullptr) context.backend->enter_phase(phase_name(phase).data());
}

}  // namespace muster::trainer
