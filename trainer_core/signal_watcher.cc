#include "trainer_core/signal_watcher.h"

#include <pthread.h>

#include <csignal>

namespace muster::trainer {
namespace {

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1}) sigaddset(&set, signal);
  return set;
}

}  // namespace

SignalWatcher::SignalWatcher(StopSignals& signals, EndProcess end_process)
    : signals_(signals), end_process_(end_process) {
  const sigset_t set = watched_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { watch(); });
}

SignalWatcher::~SignalWatcher() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR1);  // ends the wait
  thread_.join();
}

void SignalWatcher::watch() {
  const sigset_t set = watched_signals();
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (done_) return;
    if (!signals_.training) end_process_(ExitCode::kPreempted);
    if (signal == SIGINT && signals_.stop) end_process_(ExitCode::kInterrupted);
    signals_.stop = true;
  }
}

}  // namespace muster::trainer
