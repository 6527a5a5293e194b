// Time as the cores see it: values that are handed in, never read. `Instant` belongs to a clock
// without now(), so code that only includes this header cannot ask what time it is; the one function
// that can, `monotonic_now()`, is called by shells and programs alone (the tidy test checks that).
#pragma once

#include <chrono>
#include <cstdint>

namespace muster {

using Duration = std::chrono::nanoseconds;

// Counts CLOCK_MONOTONIC nanoseconds: the one clock of every deadline, comparable between the
// processes of one machine and meaningless between machines.
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

// Reads CLOCK_MONOTONIC. For shells and programs; never for a core.
Instant monotonic_now();

// Wall-clock nanoseconds since 1970, for records that people read. Never compared with a deadline.
int64_t wall_clock_unix_ns();

}  // namespace muster
