// Records the fault that ends an attempt in the incident book. Pure; called on one thread at a
// time.
#pragma once

#include <cstdint>

#include "common/time/time.h"
#include "coordinator/core/attempt/live_attempt.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

// Records the job's newest fault in a new incident, or in the open incident of the suspicion that
// led to the fault, and begins the job's recovery from the fault. `best_step`: the highest step
// that any attempt has completed. Returns the time of the last progress before the fault. Requires
// a fault that is not a preemption.
Instant record_fault(IncidentBook& incidents, LiveAttempt& attempt, Job& job, int64_t best_step,
                     const CoreTime& time);

// Records another decision than the one that the incident of the attempt announces: ranks that have
// ended since the fault have shown that a restart, or another node, cannot help.
void revise_action(IncidentBook& incidents, const LiveAttempt& attempt,
                   const RestartDecision& decision, const Fault& fault, int64_t unix_ns);

}  // namespace muster::coordinator
