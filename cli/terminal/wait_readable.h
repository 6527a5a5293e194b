// Waits for several descriptors by one poll().
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>

#include "common/time/time.h"

namespace muster::cli {

inline pollfd readable(int fd) { return {.fd = fd, .events = POLLIN, .revents = 0}; }

// Blocks until a descriptor is readable, a signal arrives or the deadline passes. Returns whether a
// descriptor is readable.
inline bool wait_readable(std::span<pollfd> fds, std::optional<Instant> deadline) {
  int timeout = -1;
  if (deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - monotonic_now());
    timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
  }
  return poll(fds.data(), fds.size(), timeout) > 0;
}

}  // namespace muster::cli
