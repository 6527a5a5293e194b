// gRPC deadlines on the monotonic clock, because wall-clock time may jump while a call waits.
#pragma once

#include <grpc/support/time.h>

#include "common/time/time.h"

namespace muster::daemon {

// Converts a deadline. Requires that gRPC's monotonic clock is CLOCK_MONOTONIC, the clock of
// Instant.
inline gpr_timespec grpc_deadline(Instant deadline) {
  return gpr_time_add(gpr_time_0(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(to_ns(deadline), GPR_TIMESPAN));
}

}  // namespace muster::daemon
