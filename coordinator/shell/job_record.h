// A job as stored: one JSON object, so that state can be looked at with sqlite3 and read by later versions.
// Unknown members are ignored; missing ones have their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Everything but Job::ranks, which is volatile.
std::string job_to_record(const Job& job);

// InvalidArgument says what is wrong with the record.
absl::StatusOr<Job> job_from_record(std::string_view record);

}  // namespace muster::coordinator
