#include "common/time/time.h"

#include <time.h>

namespace muster {
namespace {

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;

int64_t read_clock(clockid_t clock) {
  timespec ts{};
  clock_gettime(clock, &ts);
  return static_cast<int64_t>(ts.tv_sec) * kNanosecondsPerSecond + ts.tv_nsec;
}

}  // namespace

Instant monotonic_now() { return instant_from_ns(read_clock(CLOCK_MONOTONIC)); }
int64_t wall_clock_unix_ns() { return read_clock(CLOCK_REALTIME); }

}  // namespace muster
