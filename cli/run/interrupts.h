// Ctrl-C, SIGTERM and a closed terminal as a file descriptor, so that one poll() waits for
// everything.
#pragma once

#include <signal.h>

#include <memory>

#include <absl/status/statusor.h>

#include "common/stop_requests.h"

namespace muster::cli {

// Create it before the first thread: it blocks the signals, and threads inherit the mask. One per
// process, used by one thread.
class Interrupts {
 public:
  static absl::StatusOr<std::unique_ptr<Interrupts>> block();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Readable when a signal is pending.
  int fd() const { return fd_; }
  // Takes all pending signals. Returns how often this process has been asked to leave in total;
  // signals that come together are one request (stop_requests.h).
  int take();
  // Adds a request that is no signal, as take() counts them: the output was closed.
  void add_request();
  // Restores the default action for later signals: nothing is left to be saved or stopped. Signals
  // that are pending already are not delivered.
  void release();

 private:
  Interrupts(int fd, const sigset_t& signals) : fd_(fd), signals_(signals) {}

  const int fd_;
  const sigset_t signals_;
  StopRequests requests_;
};

}  // namespace muster::cli
