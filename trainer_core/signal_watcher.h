// Signals that ask a rank to leave, taken by a thread of their own.
//
// They are blocked in every other thread: oneDNN's generated matrix kernels were seen to use the stack pointer as a
// general register, so a handler on a computing thread writes its frame into the heap.
#pragma once

#include <atomic>
#include <thread>

#include "trainer_core/commands.h"

namespace muster::trainer {

// Made in main, before any other thread, which inherits the blocked signals. SIGTERM and SIGUSR1 (Slurm: the time limit is
// near) set `stop`; so does the first SIGINT, and the second ends the process. Before training they all end it, with
// kPreempted: there is nothing to save.
class SignalWatcher {
 public:
  // `end_process` does not return (tests excepted). `signals` outlives the watcher.
  using EndProcess = void (*)(ExitCode code);
  SignalWatcher(StopSignals& signals, EndProcess end_process);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void watch();

  StopSignals& signals_;
  EndProcess end_process_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace muster::trainer
