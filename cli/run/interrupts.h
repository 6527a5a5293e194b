// Makes Ctrl-C, SIGTERM and a closed terminal readable from a file descriptor, so that one poll()
// waits for them and for other descriptors.
#pragma once

#include <signal.h>

#include <memory>

#include <absl/status/statusor.h>

#include "common/process/stop_requests.h"

namespace muster::cli {

// The signals of this process. One object per process, used by one thread.
class Interrupts {
 public:
  // Blocks the signals for this thread and threads that it creates later. Requires that no other
  // thread exists yet.
  static absl::StatusOr<std::unique_ptr<Interrupts>> block();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Returns a descriptor that is readable when a signal is pending.
  int fd() const { return fd_; }
  // Consumes all pending signals. Returns the total number of requests to end this process; signals
  // that arrive together count as one request (stop_requests.h).
  int take();
  // Adds a request that is no signal, because the output was closed; take() counts it.
  void add_request();
  // Restores the default action of the signals, when nothing is left to save or stop. Discards
  // pending signals.
  void release();

 private:
  Interrupts(int fd, const sigset_t& signals) : fd_(fd), signals_(signals) {}

  const int fd_;
  const sigset_t signals_;
  StopRequests requests_;
};

}  // namespace muster::cli
