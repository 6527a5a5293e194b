// The daemons' log: one line per event on stderr, in UTC, through spdlog; for people, or as JSON for a log agent.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::daemon {

// Makes spdlog's default logger write "2026-01-31T12:00:00.123Z level program: message" to stderr.
// InvalidArgument names the levels when `level` is none of trace, debug, info, warning, error, off.
// Call once, before any thread starts.
// `format`: text, or json: then each line is json_log_line().
absl::Status set_up_logging(std::string_view program, std::string_view level,
                            std::string_view format = "text");

// {"time":"2026-01-31T12:00:00.123Z","level":"warning","program":"muster-worker","message":"job 3 attempt 1 rank 0 …","job":3,"attempt":1,"rank":0}
// Whom a message is about it says in its first words (job, attempt, rank, incident; worker), which become fields. Without a line break.
std::string json_log_line(int64_t unix_ns, std::string_view level, std::string_view program,
                          std::string_view message);

}  // namespace muster::daemon
