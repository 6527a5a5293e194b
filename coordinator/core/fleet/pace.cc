#include "coordinator/core/fleet/pace.h"

#include <algorithm>

#include "common/job/limits.h"

namespace muster::coordinator {
namespace {

// The registrations per second of one core with TLS and other load.
constexpr int64_t kSlowRegistrationsPerSecond = 500;

}  // namespace

Pace pace_of(size_t workers, const CoreOptions& options) {
  // One second for each worker, which a rate divides.
  const Duration seconds = std::chrono::seconds(static_cast<int64_t>(workers));
  const Duration unit = std::max(options.heartbeat_interval / kBusyHeartbeats, Duration(1));
  // The interval at which all workers together use up the budget.
  const Duration needed = seconds / options.heartbeat_budget;
  const int64_t units = std::max<int64_t>(1, (needed + unit - Duration(1)) / unit);
  Pace pace;
  pace.busy = units * unit;
  pace.idle = std::max(options.heartbeat_interval, pace.busy);
  pace.spread = seconds / kReconnectionsPerSecond;
  pace.lease = std::max(options.worker_lease, 2 * pace.spread);
  // In small fleets, heartbeats do not lengthen the lease of the flag.
  if (units > 1) pace.lease = std::max(pace.lease, kHeartbeatsPerLease * pace.busy);
  return pace;
}

Pace next_pace(const Pace& pace, size_t workers, const CoreOptions& options) {
  const Pace now = pace_of(workers, options);
  if (now.busy > pace.busy) return now;
  const Pace with_margin = pace_of(workers + workers / 9, options);
  return with_margin.busy < pace.busy ? with_margin : pace;
}

Pace longest(const Pace& a, const Pace& b) {
  return {std::max(a.idle, b.idle), std::max(a.busy, b.busy), std::max(a.lease, b.lease),
          std::max(a.spread, b.spread)};
}

Duration time_to_register(size_t workers) {
  return std::chrono::seconds(static_cast<int64_t>(workers) / kSlowRegistrationsPerSecond);
}

}  // namespace muster::coordinator
