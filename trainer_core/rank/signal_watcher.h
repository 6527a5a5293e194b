// Handles signals on a dedicated thread: those that request a rank to stop or to save a checkpoint.
//
// The signals are blocked in all other threads. oneDNN's generated GEMM kernels were observed to
// use the stack pointer as a general register, so a signal handler on a computing thread would
// overwrite memory of the heap.
#pragma once

#include <atomic>
#include <optional>
#include <thread>

#include "common/process/stop_requests.h"
#include "common/time/time.h"
#include "trainer_core/rank/stop_signals.h"

namespace muster::trainer {

// SIGTERMs that follow each other within this time are one request: systemd and Slurm send the
// signal to a worker and to its ranks, and the worker sends it to its ranks again.
constexpr Duration kSignalRepeatMax = std::chrono::seconds(2);

// The times that a SignalWatcher uses.
struct SignalWaits {
  Duration repeat_max = kSignalRepeatMax;
  // The time within which a SIGINT repeats an earlier request; it is short, because a person may
  // press Ctrl-C twice to end the process at once.
  Duration interrupt_repeat_max = kSameStopRequest;
  Duration peers = kPeersWait;  // from the request to the first give_up()
};

// The thread that handles signals. Constructed in main() before any other thread starts, because
// threads inherit the blocked signals.
//   SIGTERM, SIGINT, SIGUSR1 (Slurm sends it near the time limit): set StopSignals::stop. Before
//     training they end the process with kPreempted, because there is nothing to save.
//   A SIGINT later than `interrupt_repeat_max` after the first of these signals ends the process at
//     once. So does a SIGTERM later than `repeat_max` after the first SIGTERM or SIGINT.
//   SIGUSR2 sets StopSignals::checkpoint.
// StopSignals::vote_wait() after `stop` was set, leave_step() is called on a thread of its own.
// From SignalWaits::peers after `stop` was set, give_up() is called repeatedly until it returns
// true.
class SignalWatcher {
 public:
  // `signals` must outlive the watcher. `end_process` ends the process.
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

  // The members below are used by thread_ only.
  Instant stop_requested_at_{};              // when `stop` was set
  std::optional<Instant> first_end_signal_;  // the first SIGTERM or SIGINT
  Instant leave_at_ = Instant::max();
  Instant give_up_at_ = Instant::max();
  std::thread leaving_;

  std::thread thread_;
};

}  // namespace muster::trainer
