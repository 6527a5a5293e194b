// The events that a loop has taken from its queue and has not handled. The loop's thread changes
// it; any thread may read it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/time/time.h"

namespace muster::coordinator {

class LoopBacklog {
 public:
  // Records that the loop has taken `events` events, of which the first arrived at `oldest`.
  void begin(size_t events, Instant oldest) {
    oldest_ns_.store(to_ns(oldest), std::memory_order_relaxed);
    left_.store(events, std::memory_order_relaxed);
  }
  // Records that the loop has handled one of them.
  void handled_one() {
    left_.store(left_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  }
  // Records that the loop has completed its iteration, and waits for events.
  void end() { begin(0, instant_from_ns(kNone)); }

  size_t left() const { return left_.load(std::memory_order_relaxed); }
  // Returns the age of the iteration's oldest event, also after it was handled, because its effects
  // may not be stored. Returns zero between iterations.
  Duration age(Instant now) const {
    const int64_t oldest = oldest_ns_.load(std::memory_order_relaxed);
    return oldest == kNone ? Duration{} : now - instant_from_ns(oldest);
  }

 private:
  static constexpr int64_t kNone = 0;

  std::atomic<size_t> left_{0};
  std::atomic<int64_t> oldest_ns_{kNone};
};

}  // namespace muster::coordinator
