// A contiguous range of TCP ports.
#pragma once

#include <cstdint>

namespace muster {

struct PortRange {
  int32_t first = 0;
  int32_t count = 0;  // 0: no ports

  friend bool operator==(const PortRange&, const PortRange&) = default;
};

constexpr int32_t kPortMax = 65535;

}  // namespace muster
