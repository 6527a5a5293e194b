// Pauses that grow: each is twice the one before, up to a bound.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/time.h"

namespace muster {

// `first` doubled so many times (none, if fewer than 0), at most `most`.
constexpr Duration doubled(Duration first, int32_t times, Duration most) {
  constexpr int32_t kDoublingsMax = 16;  // past every bound, and far from overflow
  return std::min<Duration>(most, first * (int64_t{1} << std::clamp(times, 0, kDoublingsMax)));
}

}  // namespace muster
