// Tracks the recovery of a job from a fault: from the fault to the first step that no attempt had
// completed before. The recovery is part of the job's newest incident, and the incident book
// retains that incident for changes until the job has caught up, even after it is closed. These
// functions change the incident book and Job::recovering.
#pragma once

#include <cstdint>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/event.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/incident/recovery_times.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the current recovery of the job. Returns null if the job is not recovering, or newer
// incidents displaced the record.
Recovery* recovery_of(IncidentBook& incidents, const Job& job);

// Records the time of the transition in the job's recovery.
void mark_transition(IncidentBook& incidents, const Job& job, JobTransition transition,
                     int64_t unix_ns);

// The milestones of a recovery up to the decision, on the wall clock.
struct FaultMoments {
  int64_t progress_unix_ns = 0;
  int64_t detected_unix_ns = 0;
  int64_t evidence_unix_ns = 0;
  int64_t decided_unix_ns = 0;
};
// Begins the job's recovery from incident `id`. `best_step`: the highest step that any attempt has
// completed. Does nothing if the incident is not open.
void begin_recovery(IncidentBook& incidents, Job& job, IncidentId id, const FaultMoments& moments,
                    int64_t best_step);

// Updates the recovery with a progress page from a heartbeat. Returns whether the job has caught
// up.
bool follow_recovery(IncidentBook& incidents, const Job& job, const AttemptWatch& steps,
                     const RankProgress& progress, AttemptWatch::News news, int64_t unix_ns);

// Ends the recovery. `interrupted_by`: the incident of another fault; 0: none. `shows_no_steps`:
// the program reports no steps, so the job counts as recovered when its ranks run. Returns whether
// there was a recovery.
bool end_recovery(IncidentBook& incidents, Job& job, IncidentId interrupted_by,
                  bool shows_no_steps);

}  // namespace muster::coordinator
