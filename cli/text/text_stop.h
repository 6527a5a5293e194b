// Lets the user end a text command early.
#pragma once

#include <atomic>

#include <absl/status/status.h>

namespace muster::cli {

// After this call the first Ctrl-C or SIGTERM sets the returned flag, and the second one ends the
// process.
const std::atomic<bool>& stop_on_signal();

// As fail(), but a stop by the user is not reported as bad input.
int fail_or_stop(const absl::Status& status);

}  // namespace muster::cli
