// Time for the cores, which receive it as a value and never read a clock. `Instant` belongs to a
// clock without now(), so code that includes only this header cannot read the clock. Only shells
// and programs call `monotonic_now()`; the tidy test checks that.
#pragma once

#include <chrono>
#include <cstdint>

namespace muster {

using Duration = std::chrono::nanoseconds;

// CLOCK_MONOTONIC in nanoseconds: the clock of every deadline. Its values are comparable between
// processes of one machine, and not between machines.
struct MonotonicClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicClock, duration>;
  static constexpr bool is_steady = true;
};

using Instant = MonotonicClock::time_point;

inline Instant instant_from_ns(int64_t ns) { return Instant(Duration(ns)); }
inline int64_t to_ns(Instant t) { return t.time_since_epoch().count(); }
inline double to_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// Reads CLOCK_MONOTONIC. For shells and programs; never called by a core.
Instant monotonic_now();

// Returns wall-clock nanoseconds since 1970, for records that people read. Never compared with a
// deadline.
int64_t wall_clock_unix_ns();

}  // namespace muster
