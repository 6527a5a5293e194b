// How a job comes back from a fault: the recovery in its newest incident, from the fault to the
// first step that was not completed before. An incident's recovery outlives the incident: the book
// retains it for changes until the job has caught up. Functions of the book and the job's record,
// whose `recovering` they set.
#pragma once

#include <cstdint>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/event.h"
#include "coordinator/core/incident/incidents.h"
#include "coordinator/core/incident/recovery_times.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Null: the job recovers from nothing, or the record was dropped for newer ones.
Recovery* recovery_of(IncidentBook& incidents, const Job& job);

// Marks the moment of the transition in the job's recovery.
void mark_transition(IncidentBook& incidents, const Job& job, JobTransition transition,
                     int64_t unix_ns);

// The moments before the decision, by the wall clock.
struct FaultMoments {
  int64_t progress_unix_ns = 0;
  int64_t detected_unix_ns = 0;
  int64_t evidence_unix_ns = 0;
  int64_t decided_unix_ns = 0;
};
// Begins the job's recovery from `id`. `best_step`: the furthest step that any attempt has
// completed. Ignored when the incident is not open.
void begin_recovery(IncidentBook& incidents, Job& job, IncidentId id, const FaultMoments& moments,
                    int64_t best_step);

// Follows a page that came with a heartbeat. True: the job has caught up.
bool follow_recovery(IncidentBook& incidents, const Job& job, const AttemptWatch& steps,
                     const RankProgress& progress, AttemptWatch::News news, int64_t unix_ns);

// Ends the recovery. `interrupted_by`: another fault's incident; 0: none. `shows_no_steps`: a
// program that reports nothing of its steps had come back when it ran. True: there was one.
bool end_recovery(IncidentBook& incidents, Job& job, IncidentId interrupted_by,
                  bool shows_no_steps);

}  // namespace muster::coordinator
