// The stored form of a job: one JSON object, which sqlite3 and later versions can read. Unknown
// members are ignored; missing members have their default.
#pragma once

#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Serialises everything except the volatile fields and the exits, which have records of their own:
// a job of 100,000 ranks is not written again for each of them.
std::string job_to_record(const Job& job);
std::string exit_to_record(const RankExit& exit);

// Return InvalidArgument, with the reason, if the record is not valid. The job has the exits that
// schema 3 stored in its record.
absl::StatusOr<Job> job_from_record(std::string_view record);
absl::StatusOr<RankExit> exit_from_record(std::string_view record);
// Returns InvalidArgument, with the reason, if the values of a job and its exits contradict each
// other.
absl::Status check_consistency(const Job& job);

}  // namespace muster::coordinator
