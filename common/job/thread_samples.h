// Samples of a rank's main thread since its attempt began: the share of time in which it did not
// wait for an event, such as a message of another rank. Cumulative.
#pragma once

#include <cstdint>

namespace muster {

struct ThreadSamples {
  uint64_t count = 0;
  uint64_t awake = 0;  // those in which it ran, slept for a time, or waited for a disk

  friend bool operator==(const ThreadSamples&, const ThreadSamples&) = default;
};

}  // namespace muster
