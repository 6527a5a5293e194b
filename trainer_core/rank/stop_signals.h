// What signals ask of the training loop, and how it is left in the middle of a step that takes too long.
//
//   asked ── the ranks vote, which they do at the end of a step ──▶ the loop saves and leaves by itself
//     ├───── the step still runs after vote_wait ─▶ a thread of its own saves the last completed step, the process ends
//     └───── the ranks that save with this one have not come along after kPeersWait ─▶ the process ends, and saves nothing
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "common/exit_code.h"

namespace muster::trainer {

// Does not return (tests excepted).
using EndProcess = void (*)(ExitCode code);

// `muster cancel` kills a rank 4 s after SIGTERM. Those that save leave most of that to the disk. The others have nothing to save: they
// go when those, which may hear of it later, have begun, and before they are killed.
constexpr std::chrono::milliseconds kVoteWait{1000};
constexpr std::chrono::milliseconds kFollowersVoteWait{3000};
// For peers that may never be asked: a worker that leaves has told the coordinator, which asks all ranks at once, or there is none.
constexpr std::chrono::milliseconds kPeersWait{3000};

// A training loop, as the threads see it that signals have.
class RunningStep {
 public:
  virtual ~RunningStep() = default;
  // Saves what the completed steps have made and ends the process; nothing when the loop is leaving by itself. Whatever the loop's
  // thread is doing.
  virtual void leave(EndProcess end_process) = 0;
  // Beside that, or beside a loop that leaves: ends the process where it waits for peers. False where it does not, or not yet, or
  // while a save is under way: to be asked again.
  virtual bool give_up(EndProcess end_process) = 0;
};

// Any thread.
class StopSignals {
 public:
  std::atomic<bool> stop{false};  // checkpoint and leave
  std::atomic<bool> checkpoint{
      false};  // checkpoint and go on: the loop takes it down when it votes
  // Before that there is nothing to save: a signal ends the process.
  std::atomic<bool> training{false};

  // From the loop's begin until its end, whose thread calls both. `step` lives until loop_ends() has returned, which waits for
  // whoever is in it.
  void loop_begins(RunningStep& step, std::chrono::milliseconds vote_wait);
  void loop_ends();

  std::chrono::milliseconds vote_wait() const;
  // The wait is over.
  void leave_step(EndProcess end_process);
  // The peers have had their time. RunningStep's; false also where no loop runs.
  bool give_up(EndProcess end_process);

 private:
  // False where there is no step. `over`: because the loop has ended.
  bool with_step(const std::function<void(RunningStep&)>& call, bool* over = nullptr);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RunningStep* step_ = nullptr;
  int in_step_ = 0;    // calls of it
  bool over_ = false;  // the loop has ended: the process is about to end by itself
  std::chrono::milliseconds vote_wait_ = kVoteWait;
};

}  // namespace muster::trainer
