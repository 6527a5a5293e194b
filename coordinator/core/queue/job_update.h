// Checks a user's request to change the spec of a job. Pure.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "coordinator/core/event.h"
#include "coordinator/core/queue/input_limits.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns whether the job has accepted the request before: the client repeats it.
bool has_update(const Job& job, const std::string& request_id);

// Returns the update that the event requests. Errors: FailedPrecondition if the job cannot be
// updated now, Aborted if its revision is another one than the client's, InvalidArgument with the
// field and its value.
absl::StatusOr<JobUpdate> update_of(const Job& job, const JobUpdateRequested& event,
                                    const InputLimits& limits);

}  // namespace muster::coordinator
