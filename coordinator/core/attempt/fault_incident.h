// Records the fault that ends an attempt in the incident book. Pure; called on one thread at a
// time.
#pragma once

#include <cstdint>

#include "common/time/time.h"
#include "coordinator/core/attempt/live_attempt.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Records the job's newest fault in a new incident, or in the open incident of the suspicion that
// led to the fault, and begins the job's recovery from the fault. `best_step`: the highest step
// that any attempt has completed. Returns the time of the last progress before the fault. Requires
// a fault that is not a preemption.
Instant record_fault(IncidentBook& incidents, LiveAttempt& attempt, Job& job, int64_t best_step,
                     const CoreTime& time);

}  // namespace muster::coordinator
