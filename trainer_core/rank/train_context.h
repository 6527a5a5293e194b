// The environment of a rank's training: its groups, progress page, outputs and folders.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "common/progress/progress_page.h"
#include "trainer_core/base/saved_plan.h"
#include "trainer_core/checkpoint/owner.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/stop_signals.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// The folder of the local checkpoints of a node.
struct LocalStorage {
  std::string folder = {};  // the folder; only this job uses it
  std::string host = {};    // host_identity()
};

// The arguments of train(). All referenced objects must outlive the call.
struct TrainContext {
  ProcessGroups& groups;  // groups of the config's mesh
  ProgressWriter& page;
  std::ostream& out;     // receives the lines of rank 0
  std::ostream& err;     // receives the errors of every rank
  StopSignals& signals;  // requests to save a checkpoint and to stop
  int32_t threads = 1;   // CPU threads
  // Called on every rank after each step. May be empty.
  std::function<void(const StepRecord&)> on_step;
  // The owner that rank 0 writes to the checkpoint directory (owner.h).
  CheckpointOwner owner = {};
  // Called on every rank after each evaluation. May be empty.
  std::function<void(const EvalRecord&)> on_evaluation = nullptr;
  // The local checkpoints of this rank's node.
  LocalStorage local = {};
  // The step of the newest checkpoint that an earlier attempt of the job has reported; 0: none is
  // known. If this step is known but no checkpoint exists now, checkpoints were lost, and the
  // training must not start.
  uint64_t known_checkpoint_step = 0;
  // The backend, with whose memory `groups` was constructed; null: the CPU's.
  std::shared_ptr<Backend> backend = nullptr;
  // The plan of compiled_trainstep_file, which the rank's own must match; null: none.
  const SavedPlan* saved_plan = nullptr;
};

// Shows a phase on the progress page and in profilers. Thread-safe.
inline void enter_phase(const TrainContext& context, Phase phase) {
  context.page.set_phase(phase, monotonic_now());
  // Phase names are string literals, so they end with a NUL.
  if (context.backend != nullptr) context.backend->enter_phase(phase_name(phase).data());
}

}  // namespace muster::trainer
