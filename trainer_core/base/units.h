// Units of sizes in messages.
#pragma once

namespace muster::trainer {

// Bytes per MiB; a double, because messages print fractions of it.
constexpr double kMiB = 1 << 20;

}  // namespace muster::trainer
