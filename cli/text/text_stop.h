// How people end a text command before its time.
#pragma once

#include <atomic>

#include <absl/status/status.h>

namespace muster::cli {

// From here on Ctrl-C and SIGTERM ask the command to leave, which what is returned then says; the second of them ends the process.
const std::atomic<bool>& stop_on_signal();

// As fail(), but what a person has stopped is no bad input.
int fail_or_stop(const absl::Status& status);

}  // namespace muster::cli
