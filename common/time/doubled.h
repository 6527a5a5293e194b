// Back-off: each pause is twice the previous pause, up to a bound.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/time/time.h"

namespace muster {

// Returns `first` doubled `times` times, at most `most`. A negative `times` counts as 0.
constexpr Duration doubled(Duration first, int32_t times, Duration most) {
  constexpr int32_t kDoublingsMax = 16;  // reaches every bound in use and does not overflow
  return std::min<Duration>(most, first * (int64_t{1} << std::clamp(times, 0, kDoublingsMax)));
}

}  // namespace muster
