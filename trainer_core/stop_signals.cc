#include "trainer_core/stop_signals.h"

namespace muster::trainer {

void StopSignals::loop_begins(RunningStep& step, std::chrono::milliseconds vote_wait) {
  const std::lock_guard lock(mutex_);
  step_ = &step;
  vote_wait_ = vote_wait;
}

void StopSignals::loop_ends() {
  const std::lock_guard lock(mutex_);
  step_ = nullptr;
  over_ = true;
}

std::chrono::milliseconds StopSignals::vote_wait() const {
  const std::lock_guard lock(mutex_);
  return vote_wait_;
}

void StopSignals::leave_step(EndProcess end_process) {
  const std::lock_guard lock(mutex_);
  if (step_ != nullptr) {
    step_->leave(end_process);
  } else if (!over_) {
    end_process(ExitCode::kPreempted);
  }
}

}  // namespace muster::trainer
