// Units of sizes for messages.
#pragma once

namespace muster::trainer {

// Bytes per MiB. It is a double, because messages print fractions of a MiB.
constexpr double kMiB = 1 << 20;

}  // namespace muster::trainer
