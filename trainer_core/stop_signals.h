// What signals ask of the training loop, and how it is left in the middle of a step that takes too long.
//
//   asked ── the ranks vote, which they do at the end of a step ──▶ the loop saves and leaves by itself
//     └───── the step still runs after vote_wait ─▶ the signal thread saves the last completed step, the process ends
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "common/exit_code.h"

namespace muster::trainer {

// Does not return (tests excepted).
using EndProcess = void (*)(ExitCode code);

// A rank is killed 4 s after SIGTERM. Those that save leave most of that to the disk. The others have nothing to save: they go when
// those, which may hear of it later, have begun, and before they are killed.
constexpr std::chrono::milliseconds kVoteWait{1000};
constexpr std::chrono::milliseconds kFollowersVoteWait{3000};

// A training loop, as the signal thread sees it.
class RunningStep {
 public:
  virtual ~RunningStep() = default;
  // Saves what the completed steps have made and ends the process; nothing when the loop is leaving by itself. On the
  // signal thread, whatever the loop's thread is doing.
  virtual void leave(EndProcess end_process) = 0;
};

// Any thread.
class StopSignals {
 public:
  std::atomic<bool> stop{false};  // checkpoint and leave
  std::atomic<bool> checkpoint{
      false};  // checkpoint and go on: the loop takes it down when it votes
  // Before that there is nothing to save: a signal ends the process.
  std::atomic<bool> training{false};

  // From the loop's begin until its end, whose thread calls both. `step` lives until loop_ends() has returned.
  void loop_begins(RunningStep& step, std::chrono::milliseconds vote_wait);
  void loop_ends();

  std::chrono::milliseconds vote_wait() const;
  // The wait is over.
  void leave_step(EndProcess end_process);

 private:
  mutable std::mutex mutex_;
  RunningStep* step_ = nullptr;
  bool over_ = false;  // the loop has ended: the process is about to end by itself
  std::chrono::milliseconds vote_wait_ = kVoteWait;
};

}  // namespace muster::trainer
