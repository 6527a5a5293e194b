// Requests that signals make of the training loop, and the ways out of a step that takes too long.
//
//   stop ── the ranks vote at the end of a step ──▶ the loop saves and leaves by itself
//     ├──── the step still runs after vote_wait ─▶ another thread saves the last completed
//     │                                            step, then the process ends
//     └──── the peers of that save have not joined after kPeersWait ─▶ the process ends unsaved
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "common/exit_code.h"

namespace muster::trainer {

// Does not return (except in tests).
using EndProcess = void (*)(ExitCode code);

// `muster cancel` kills a rank 4 s after SIGTERM. Ranks that save leave most of that time to the
// disk. Other ranks have nothing to save: they end after the saving ranks, which may receive the
// signal later, have begun, and before they are killed.
constexpr std::chrono::milliseconds kVoteWait{1000};
constexpr std::chrono::milliseconds kFollowersVoteWait{3000};
// The wait for peers that may never receive a signal: a draining worker has reported to the
// coordinator, which signals all ranks at once, or there is no coordinator.
constexpr std::chrono::milliseconds kPeersWait{3000};

// A training loop as the signal threads use it.
class RunningStep {
 public:
  virtual ~RunningStep() = default;
  // Saves the state of the completed steps and ends the process. Does nothing if the loop is
  // leaving by itself. May be called whatever the loop's thread is doing.
  virtual void leave(EndProcess end_process) = 0;
  // Ends the process if it waits for peers. May be called during leave(), or while the loop leaves.
  // Returns false if it does not wait, does not wait yet, or a save is under way: call it again.
  virtual bool give_up(EndProcess end_process) = 0;
};

// Thread-safe.
class StopSignals {
 public:
  std::atomic<bool> stop{false};  // checkpoint and leave
  // Checkpoint and continue; the loop clears it when it votes.
  std::atomic<bool> checkpoint{false};
  // Whether there is state to save; before that a signal ends the process.
  std::atomic<bool> training{false};

  // Called on the loop's thread at its begin and its end. `step` outlives the return of
  // loop_ends(), which blocks until all calls into the step have returned.
  void loop_begins(RunningStep& step, std::chrono::milliseconds vote_wait);
  void loop_ends();

  std::chrono::milliseconds vote_wait() const;
  // Leaves the running step; called when vote_wait is over.
  void leave_step(EndProcess end_process);
  // Calls RunningStep::give_up(), after the wait for peers. Returns its result; false if no loop
  // runs.
  bool give_up(EndProcess end_process);

 private:
  // Runs `call` on the running step. Returns false if there is none; `over` is set if
  // the reason is that the loop has ended.
  bool with_step(const std::function<void(RunningStep&)>& call, bool* over = nullptr);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RunningStep* step_ = nullptr;
  int in_step_ = 0;    // calls into *step_ in progress
  bool over_ = false;  // the loop has ended: the process is about to exit by itself
  std::chrono::milliseconds vote_wait_ = kVoteWait;
};

}  // namespace muster::trainer
