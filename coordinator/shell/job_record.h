// A job as stored: one JSON object, readable with sqlite3 and by later versions. Unknown members
// are ignored; missing ones take their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Serialises everything except Job::ranks, which is volatile.
std::string job_to_record(const Job& job);

// Returns InvalidArgument with what is wrong with the record.
absl::StatusOr<Job> job_from_record(std::string_view record);

}  // namespace muster::coordinator
