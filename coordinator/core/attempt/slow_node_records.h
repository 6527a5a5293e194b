// Records the slow nodes of an attempt in the job's record and in incidents. Pure; called on one
// thread at a time.
#pragma once

#include "coordinator/core/hang/attempt_progress.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Compares the nodes after an evaluation of the ranks, and records nodes that are confirmed or no
// longer slow in Job::slow_nodes. Returns whether that has changed.
bool record_slow_nodes(AttemptProgress& progress, Job& job, SlowNodePolicy policy,
                       IncidentBook& incidents, const CoreTime& time);
// Records what the job has gained by leaving slow nodes, once the attempt has a window of steps
// without another slow node. Returns whether Job::slow_nodes has changed.
bool measure_moves(const AttemptProgress& progress, Job& job, IncidentBook& incidents,
                   const CoreTime& time);

}  // namespace muster::coordinator
