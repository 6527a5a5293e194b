// The time of one step of the core, on both clocks.
#pragma once

#include <cstdint>

#include "common/time/time.h"

namespace muster::coordinator {

struct CoreTime {
  // The monotonic clock, used for every deadline.
  Instant now{};
  // The wall clock, used only for records. 0: not known yet.
  int64_t unix_ns = 0;

  // Returns the wall-clock time of `then`. Only for records, because the two clocks drift apart.
  int64_t unix_ns_of(Instant then) const { return unix_ns - (now - then).count(); }
};

}  // namespace muster::coordinator
