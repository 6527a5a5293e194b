// How often workers send heartbeats, which follows from the size of the fleet: all workers together
// send at most CoreOptions::heartbeat_budget heartbeats per second, so that the coordinator's load
// does not grow with the fleet. Leases and reconnections follow. Pure.
#pragma once

#include <cstddef>

#include "common/time/time.h"
#include "coordinator/core/core_options.h"

namespace muster::coordinator {

struct Pace {
  Duration idle{};   // the time between two heartbeats of a worker without ranks
  Duration busy{};   // the same for a worker with ranks
  Duration lease{};  // the silence after which a worker is lost
  // The time over which workers spread their reconnections after a loss of the coordinator.
  Duration spread{};

  friend bool operator==(const Pace&, const Pace&) = default;
};

// The registrations per second for which reconnections are spread. A registration costs some
// hundred microseconds, and a TLS handshake a millisecond or more.
constexpr int64_t kReconnectionsPerSecond = 2'500;
// A lease contains at least this many heartbeats, so that a lost one does not end it.
constexpr int64_t kHeartbeatsPerLease = 5;

// Returns the pace of a fleet of `workers`. The busy interval is a multiple of the interval of a
// small fleet, so that it changes seldom while a fleet grows.
Pace pace_of(size_t workers, const CoreOptions& options);

// Returns the pace for which a fleet of `workers` changes from `pace`: pace_of(), except that a
// fleet must be smaller by a tenth before the intervals become shorter. A fleet whose size varies
// around a bound therefore retains its pace.
Pace next_pace(const Pace& pace, size_t workers, const CoreOptions& options);

// Returns the larger of both values for each member.
Pace longest(const Pace& a, const Pace& b);

// Returns the time beyond one lease that a restarted coordinator grants to `workers` with ranks to
// register again. Zero for fleets that register within a second even with TLS.
Duration time_to_register(size_t workers);

}  // namespace muster::coordinator
