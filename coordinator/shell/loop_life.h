// Signs of life of a loop, for the liveness probe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "common/time.h"

namespace muster::coordinator {

// The time without a sign of life after which a loop counts as stuck. One iteration of a large
// fleet takes a second.
constexpr Duration kStuckAfter = std::chrono::seconds(30);

class LoopLife {
 public:
  // Shows that the loop works. Called on its thread.
  void show() { shown_ns_ = monotonic_now().time_since_epoch().count(); }
  // Shows that the loop waits for events or the storage. Called on its thread.
  void rest() { shown_ns_ = 0; }
  // Returns false if the loop works and has shown no life for kStuckAfter. Thread-safe.
  bool is_alive(Instant now) const {
    const int64_t shown = shown_ns_;
    return shown == 0 || now.time_since_epoch().count() - shown < kStuckAfter.count();
  }

 private:
  std::atomic<int64_t> shown_ns_{0};  // 0: the loop rests
};

}  // namespace muster::coordinator
