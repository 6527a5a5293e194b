// The delay before a worker opens its next stream. The simulated workers of bench/swarm have the
// same delays.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "common/time/time.h"

namespace muster::worker {

struct RetryTimes {
  Duration first = std::chrono::milliseconds(50);
  // Also the maximum time between two attempts, unless the fleet's spread is longer.
  Duration max = std::chrono::seconds(1);
};

// Returns the delay after a stream has ended. Delays double up to a limit, and are random, so that
// workers do not reconnect in step. The first delay has the fleet's `spread` added, because a
// coordinator that 10,000 workers greet at once answers none of them in time.
//
// `failures`: streams that have ended since the last registration, without this one.
// `is_awaited`: whether the worker has ranks or reports of them. Workers without follow half a
// spread later: a restarted coordinator ends the attempts of workers with ranks that are late.
// `jitter`: returns a random number between 0 and 1.
template <class Jitter>
Duration retry_delay(const RetryTimes& times, uint32_t failures, Duration spread, bool is_awaited,
                     Jitter jitter) {
  // 50 ms doubled this often is far above any maximum.
  constexpr uint32_t kDoublingsMax = 20;
  const Duration delay = std::min(std::max(times.max, spread),
                                  times.first * (int64_t{1} << std::min(failures, kDoublingsMax)));
  const auto backoff = std::chrono::duration_cast<Duration>(delay * (0.5 + 0.5 * jitter()));
  if (failures > 0) return backoff;
  const double part = is_awaited ? jitter() : 1 + 0.5 * jitter();
  return backoff + std::chrono::duration_cast<Duration>(spread * part);
}

}  // namespace muster::worker
