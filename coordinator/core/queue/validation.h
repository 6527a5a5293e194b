// Validates outside input before the core acts on it. Every string and number has a bound; an error
// names the field, its value and the allowed range. Muster's own clients check earlier and in more
// detail; these checks protect the core from other clients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "common/job/limits.h"
#include "coordinator/core/event.h"
#include "coordinator/core/queue/input_limits.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

absl::Status check_spec(const JobSpec& spec, const InputLimits& limits);
absl::Status check_request_id(std::string_view request_id, const InputLimits& limits);
absl::Status check_exclusion(const NodeExcludeRequested& event, const InputLimits& limits);
absl::Status check_registration(const WorkerRegistered& event, const InputLimits& limits);

// Returns `text` without control characters, truncated to `bytes_max` at a character boundary.
std::string one_line(std::string_view text, size_t bytes_max);

}  // namespace muster::coordinator
