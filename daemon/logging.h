// The daemons' log: one line per event on stderr, in UTC, through spdlog.
#pragma once

#include <string_view>

#include <absl/status/status.h>

namespace muster::daemon {

// Makes spdlog's default logger write "2026-01-31T12:00:00.123Z level program: message" to stderr.
// InvalidArgument names the levels when `level` is none of trace, debug, info, warning, error, off.
// Call once, before any thread starts.
absl::Status set_up_logging(std::string_view program, std::string_view level);

}  // namespace muster::daemon
