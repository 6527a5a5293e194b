// Moments that people write on the command line. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace muster::cli {

// Returns the moment of "22:30" (the next time that clocks show it), "2026-12-01T08:00" or
// "2026-12-01T08:00:30" in `zone`, or of "90s", "30m", "2h" or "7d" from now on, as nanoseconds
// since 1970. Past moments are errors.
absl::StatusOr<int64_t> moment_of(const std::string& text, int64_t now_unix_ns,
                                  absl::TimeZone zone);

}  // namespace muster::cli
