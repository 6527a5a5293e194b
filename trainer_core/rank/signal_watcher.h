// Handles the signals that ask a rank to leave, on a dedicated thread.
//
// The signals are blocked in every other thread: oneDNN's generated matmul kernels were observed to
// use the stack pointer as a general register, so a handler on a computing thread would write its
// frame into the heap.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "common/stop_requests.h"
#include "common/time.h"
#include "trainer_core/rank/stop_signals.h"

namespace muster::trainer {

// systemd and Slurm signal a worker and its ranks, and the worker signals its ranks: SIGTERMs that
// follow each other within this time are one request.
constexpr Duration kSignalRepeatMax = std::chrono::seconds(2);

struct SignalWaits {
  Duration repeat_max = kSignalRepeatMax;
  // The same for a SIGINT that follows any of these signals: a person may press Ctrl-C again.
  Duration interrupt_repeat_max = kSameStopRequest;
  Duration peers = kPeersWait;
};

// Constructed in main, before any other thread starts, so that threads inherit the blocked signals.
//   SIGTERM, SIGINT, SIGUSR1 (Slurm: the time limit is near): set `stop`. Before training they end
//     the process with kPreempted: there is nothing to save.
//   A SIGINT more than `interrupt_repeat_max` after that ends the process at once. So does a
//     SIGTERM that follows the first SIGTERM or SIGINT by more than `repeat_max`.
//   SIGUSR2, at any time: sets `checkpoint`.
// When the loop's vote_wait has passed since `stop` was set, leave_step() is called on a thread of
// its own. From SignalWaits::peers on, give_up() is called until it succeeds.
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

  // Used by the watching thread only:
  Instant asked_at_{};                       // when `stop` was set
  std::optional<Instant> first_end_signal_;  // the first SIGTERM or SIGINT
  Instant leave_at_ = Instant::max();
  Instant give_up_at_ = Instant::max();
  std::thread leaving_;

  std::thread thread_;
};

}  // namespace muster::trainer
