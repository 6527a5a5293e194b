// Lets the user end a text command early.
#pragma once

#include <atomic>

#include <absl/status/status.h>

namespace muster::cli {

// Installs handlers and returns a flag. The first Ctrl-C or SIGTERM sets the flag; the second one
// ends the process.
const std::atomic<bool>& stop_on_signal();

// As fail(), but a stop by the user is not reported as bad input.
int fail_or_stop(const absl::Status& status);

}  // namespace muster::cli
