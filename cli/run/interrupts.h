// Ctrl-C, SIGTERM and a closed terminal as a file descriptor, so that one poll() waits for everything.
#pragma once

#include <signal.h>

#include <memory>

#include <absl/status/statusor.h>

namespace muster::cli {

// Make it before the first thread: it blocks the signals, and threads inherit that. One per process, one thread.
class Interrupts {
 public:
  static absl::StatusOr<std::unique_ptr<Interrupts>> block();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Readable when a signal is waiting.
  int fd() const { return fd_; }
  // Takes all waiting signals; returns how often somebody has asked to leave in all.
  int take();
  // From here on a signal ends the process as it ends any other: there is nothing left to be saved or stopped. Not those
  // that came before.
  void release();

 private:
  Interrupts(int fd, const sigset_t& signals) : fd_(fd), signals_(signals) {}

  const int fd_;
  const sigset_t signals_;
  int count_ = 0;
};

}  // namespace muster::cli
