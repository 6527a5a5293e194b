// The log of the daemons, through spdlog: one line per event on stderr, with UTC times, as text or
// as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::daemon {

// Makes spdlog's default logger write "2026-01-31T12:00:00.123Z level program: message" to stderr.
// `level`: trace, debug, info, warning, error or off; for another value returns InvalidArgument
// with this list. `format`: text, or json for lines of json_log_line(). Call it once, before any
// thread starts.
absl::Status set_up_logging(std::string_view program, std::string_view level,
                            std::string_view format = "text");

// Returns {"time":"2026-01-31T12:00:00.123Z","level":"warning","program":"muster-worker",
// "message":"job 3 attempt 1 rank 0 …","job":3,"attempt":1,"rank":0} without a line break. The
// first words of a message become fields if they name its subject (job, attempt, rank, incident,
// worker).
std::string json_log_line(int64_t unix_ns, std::string_view level, std::string_view program,
                          std::string_view message);

}  // namespace muster::daemon
