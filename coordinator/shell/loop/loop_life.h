// Records signs of life of a loop, for the liveness probe.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

#include "common/time/time.h"

namespace muster::coordinator {

// The time without a sign of life after which a loop counts as stuck. One iteration of a large
// fleet takes a second.
constexpr Duration kStuckAfter = std::chrono::seconds(30);

class LoopLife {
 public:
  // Records that the loop works, and returns the time. Called on the loop's thread.
  Instant show() {
    const Instant now = monotonic_now();
    shown_ns_ = to_ns(now);
    return now;
  }
  // Records that the loop waits for events or the storage. Called on the loop's thread.
  void rest() { shown_ns_ = 0; }
  // Returns Unavailable if the loop works and its last sign of life is kStuckAfter old.
  // Thread-safe.
  absl::Status check(Instant now) const {
    const int64_t shown = shown_ns_;
    if (shown == 0 || now.time_since_epoch().count() - shown < kStuckAfter.count())
      return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("the core has been stuck for ", to_seconds(kStuckAfter), " s"));
  }

 private:
  std::atomic<int64_t> shown_ns_{0};  // 0: the loop waits
};

}  // namespace muster::coordinator
