// Units of sizes for messages.
#pragma once

#include <cstdint>

namespace muster::trainer {

// Bytes per MiB. It is a double, because messages print fractions of a MiB.
constexpr double kMiB = 1 << 20;
// 16 TiB, above the memory of any device; a larger value is a typing error.
constexpr int64_t kDeviceMemoryMibMax = int64_t{16} << 20;

}  // namespace muster::trainer
