// Counts requests to stop. One request may cause several signals: `timeout` signals a process and
// then its group, a wrapper forwards the Ctrl-C that the terminal has already sent, a script
// repeats its kill. Signals that come together are one request.
#pragma once

#include <signal.h>

#include <chrono>

#include "common/time/time.h"

namespace muster {

// Signals that arrive within this time after the first signal of a request belong to the same
// request. Senders that repeat a signal do so within milliseconds; a person who reads what the
// first Ctrl-C does takes longer.
constexpr Duration kSameStopRequest = std::chrono::milliseconds(500);

// Not thread-safe. The caller supplies the clock.
class StopRequests {
 public:
  // Adds a signal. Returns whether the signal begins a new request.
  bool add(Instant now) {
    if (count_ > 0 && now - began_ < kSameStopRequest) return false;
    began_ = now;
    ++count_;
    return true;
  }
  int count() const { return count_; }

 private:
  Instant began_{};  // start of the newest request, if there is one
  int count_ = 0;
};

// Returns whether a SIGINT or SIGTERM that the calling thread blocks is pending.
inline bool is_stop_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1;
}

}  // namespace muster
