// Decides when reads are refused so that heartbeats, registrations, submissions and cancellations
// do not wait behind them: while the core loop handles events late. Reads are refused again until
// the loop has been in time for a while, so that they do not overload it at once.
//
// The states, by the lag (the age of the oldest event that the loop has taken):
//
//   in time ──── lag ≥ limit ────▶ overloaded
//      ▲                               │
//      └──── lag < limit for kCalm ────┘
//
// Thread-safe.
#pragma once

#include <chrono>
#include <mutex>

#include <absl/status/status.h>

#include "common/time/time.h"

namespace muster::coordinator {

// The default limit: longer than an iteration of a large fleet, and well below a command's deadline
// of 5 s.
constexpr Duration kOverloadLag = std::chrono::seconds(2);
// The time without lag after which reads are answered again.
constexpr Duration kOverloadCalm = std::chrono::seconds(2);

struct OverloadLimits {
  Duration lag = kOverloadLag;  // from which on reads are refused
  Duration calm = kOverloadCalm;
};

class Overload {
 public:
  explicit Overload(OverloadLimits limits) : limit_(limits.lag), calm_(limits.calm) {}

  // Records the lag of the loop at `now` and returns whether it is overloaded. Calls for equal
  // times may come in any order.
  bool observe(Duration lag, Instant now);

  // Returns the error for a read that is refused.
  absl::Status refusal() const;
  // The time after which a caller should repeat a refused read.
  Duration retry_after() const { return calm_; }

 private:
  const Duration limit_;
  const Duration calm_;
  std::mutex mutex_;
  bool is_overloaded_ = false;
  Instant late_at_{};  // the last time with a lag of at least the limit
};

}  // namespace muster::coordinator
