// The requests that signals make to the training loop, and the ways to end a step that takes too
// long:
//
//   stop ── the ranks vote at the end of a step ──▶ the loop saves and ends the training
//     ├──── the step still runs after vote_wait ─▶ another thread saves the last completed
//     │                                            step, then the process ends
//     └──── the peers of that save have not joined after kPeersWait ─▶ the process ends, and
//                                            nothing is saved
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "common/process/exit_code.h"

namespace muster::trainer {

// Ends the process with an exit code. Returns in tests only.
using EndProcess = void (*)(ExitCode code);

// The time after a request to stop in which the loop may vote; then another thread saves. `muster
// cancel` kills a rank 4 s after SIGTERM. kVoteWait is that of ranks that save: it leaves most of
// the 4 s for the disk. kFollowersVoteWait is that of ranks that have nothing to save: they must
// not end before the saving ranks, which may receive the signal later, have begun to save, but must
// end before they are killed.
constexpr std::chrono::milliseconds kVoteWait{1000};
constexpr std::chrono::milliseconds kFollowersVoteWait{3000};
// The time to wait for peers, which may never receive a signal. It can be short: the coordinator
// signals all ranks at once after a draining worker has reported to it, and without a coordinator
// no signal follows.
constexpr std::chrono::milliseconds kPeersWait{3000};

// The training loop, for the threads that handle signals.
class RunningStep {
 public:
  virtual ~RunningStep() = default;
  // Saves the state after the last completed step and ends the process. Does nothing if the loop
  // itself is about to end. May be called at any time, on any thread.
  virtual void leave(EndProcess end_process) = 0;
  // Ends the process if leave() or the ending loop waits for peers. Returns false if nothing waits
  // for peers, or a save is in progress; the caller then calls it again later. May be called during
  // leave().
  virtual bool give_up(EndProcess end_process) = 0;
};

// The requests, and the running loop. Thread-safe.
class StopSignals {
 public:
  std::atomic<bool> stop{false};  // save a checkpoint and end the training
  // Save a checkpoint and continue. The loop clears it when it votes.
  std::atomic<bool> checkpoint{false};
  // Training has begun, so there is state to save. Before that a signal ends the process.
  std::atomic<bool> training{false};

  // Called on the thread of the loop when it begins and ends. `step` must be valid until
  // loop_ends() returns, which blocks until all calls of `step` have returned.
  void loop_begins(RunningStep& step, std::chrono::milliseconds vote_wait);
  void loop_ends();

  // Returns the time that the loop has to vote after a request to stop.
  std::chrono::milliseconds vote_wait() const;
  // Calls RunningStep::leave(). Called once vote_wait() has passed.
  void leave_step(EndProcess end_process);
  // Calls RunningStep::give_up() and returns its result; false if no loop runs. Called once the
  // wait for peers has passed.
  bool give_up(EndProcess end_process);

 private:
  // Calls `call` with the running step. Returns false if there is none; then sets `over`, unless
  // null, if the loop has ended.
  bool with_step(const std::function<void(RunningStep&)>& call, bool* over = nullptr);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RunningStep* step_ = nullptr;
  int in_step_ = 0;    // number of calls of *step_ in progress
  bool over_ = false;  // the loop has ended, so the process is about to exit
  std::chrono::milliseconds vote_wait_ = kVoteWait;
};

}  // namespace muster::trainer
