#include "trainer_core/rank/stop_signals.h"

namespace muster::trainer {

void StopSignals::loop_begins(RunningStep& step, std::chrono::milliseconds vote_wait) {
  const std::lock_guard lock(mutex_);
  step_ = &step;
  vote_wait_ = vote_wait;
}

void StopSignals::loop_ends() {
  std::unique_lock lock(mutex_);
  step_ = nullptr;
  over_ = true;
  changed_.wait(lock, [this] { return in_step_ == 0; });
}

std::chrono::milliseconds StopSignals::vote_wait() const {
  const std::lock_guard lock(mutex_);
  return vote_wait_;
}

// Calls `call` without the lock, because one call may wait for something that another call ends.
bool StopSignals::with_step(const std::function<void(RunningStep&)>& call, bool* over) {
  std::unique_lock lock(mutex_);
  if (over != nullptr) *over = over_;
  if (step_ == nullptr) return false;
  RunningStep& step = *step_;
  ++in_step_;
  lock.unlock();
  call(step);
  lock.lock();
  --in_step_;
  changed_.notify_all();
  return true;
}

void StopSignals::leave_step(EndProcess end_process) {
  bool over = false;
  const auto leave = [&](RunningStep& step) { step.leave(end_process); };
  if (!with_step(leave, &over) && !over) end_process(ExitCode::kPreempted);
}

bool StopSignals::give_up(EndProcess end_process) {
  bool given_up = false;
  with_step([&](RunningStep& step) { given_up = step.give_up(end_process); });
  return given_up;
}

}  // namespace muster::trainer
