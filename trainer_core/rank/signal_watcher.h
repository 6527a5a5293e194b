// Signals that ask a rank to leave, taken by a thread of their own.
//
// They are blocked in every other thread: oneDNN's generated matrix kernels were seen to use the stack pointer as a
// general register, so a handler on a computing thread writes its frame into the heap.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "common/time.h"
#include "trainer_core/rank/stop_signals.h"

namespace muster::trainer {

// systemd and Slurm signal a worker and its ranks, and the worker signals its ranks: SIGTERMs in so quick a succession are one wish.
constexpr Duration kSameWish = std::chrono::seconds(2);

struct SignalWaits {
  Duration same_wish = kSameWish;
  Duration peers = kPeersWait;
};

// Made in main, before any other thread, which inherits the blocked signals. SIGTERM, SIGINT and SIGUSR1 (Slurm: the time limit is
// near) set `stop`. After that a SIGINT ends the process at once, and so does a SIGTERM that is not the first wish to end it, nor
// the same. SIGUSR2 sets `checkpoint`, at any time. When the loop's vote_wait has passed since the first of them, leave_step() is
// called, on a thread for it alone, and from kPeersWait on give_up(), until there is something to give up. Before training all but
// SIGUSR2 end the process, with kPreempted: there is nothing to save.
class SignalWatcher {
 public:
  // `signals` outlives the watcher.
  SignalWatcher(StopSignals& signals, EndProcess end_process, const SignalWaits& waits = {});
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void watch();
  void take(int signal, Instant now);
  void act(Instant now);

  StopSignals& signals_;
  const EndProcess end_process_;
  const SignalWaits waits_;
  std::atomic<bool> done_{false};

  // Of the watching thread:
  std::optional<Instant> told_to_end_;  // the first SIGTERM or SIGINT
  Instant leave_at_ = Instant::max();
  Instant give_up_at_ = Instant::max();
  std::thread leaving_;

  std::thread thread_;
};

}  // namespace muster::trainer
