// The stored form of a job: one JSON object, which sqlite3 and later versions can read. Unknown
// members are ignored; missing members have their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Serialises everything except Job::ranks, which is volatile.
std::string job_to_record(const Job& job);

// Returns InvalidArgument, with the reason, if the record is not valid.
absl::StatusOr<Job> job_from_record(std::string_view record);

}  // namespace muster::coordinator
