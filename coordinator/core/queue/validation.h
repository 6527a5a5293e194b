// Outside input is judged here before the core acts on it: every string and number has a bound, and
// an error names the field, its value and what would be right. The shells of clients check earlier
// and say more; this is what holds when a client does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "common/limits.h"
#include "coordinator/core/event.h"
#include "coordinator/core/queue/input_limits.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

absl::Status check_spec(const JobSpec& spec, const InputLimits& limits);
absl::Status check_request_id(std::string_view request_id, const InputLimits& limits);
absl::Status check_exclusion(const NodeExcludeRequested& event, const InputLimits& limits);
absl::Status check_registration(const WorkerRegistered& event, const InputLimits& limits);

// `text` without control characters, cut to `bytes_max` at a character's border.
std::string one_line(std::string_view text, size_t bytes_max);

}  // namespace muster::coordinator
