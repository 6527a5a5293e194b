// The moment of one step of the core, by both clocks.
#pragma once

#include <cstdint>

#include "common/time.h"

namespace muster::coordinator {

struct StepTime {
  // The monotonic clock: every deadline is of it.
  Instant now{};
  // The wall clock, for records alone. 0: not known yet.
  int64_t unix_ns = 0;

  // The wall-clock time of `then`. For records alone: the two clocks drift apart.
  int64_t unix_ns_of(Instant then) const { return unix_ns - (now - then).count(); }
};

}  // namespace muster::coordinator
