// Revisions of a job's spec (records/revision.h): rolls them in between two attempts, and rolls
// them back. Pure functions of the job's record.
//
// An attempt runs one revision from its start to its end, and attempts of a job never overlap, so
// neither do revisions. All state is in the job's record: a restarted coordinator continues at the
// same point.
#pragma once

#include <cstdint>
#include <string>

#include "common/time/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A program that reports no steps passes its trial after this time with all ranks up: most programs
// that fail at their start do so within minutes.
constexpr Duration kSilentTrial = std::chrono::minutes(10);

// Returns the fault that ends the attempt so that the next one takes the pending update. It does
// not count against the job.
Fault fault_of_update(const Job& job, int64_t unix_ns);

// Makes the pending update the job's revision. A job that has had an attempt begins a trial; if the
// former revision was still on trial, the one before it remains the one to return to. The job has
// all its restarts again. Requires a pending update and no attempt.
void adopt_update(Job& job);

// Returns whether the newest fault ends the trial: it is one of the revision and not of a node, the
// network or storage.
bool fails_trial(const Job& job);
// Returns the sentence about the rollback after the newest fault. Requires fails_trial().
std::string rollback_text(const Job& job);
// Returns to the revision before the trial, and drops a pending update, which was made on top of
// the failed one. Requires fails_trial() and no attempt.
void roll_back(Job& job);

// Returns whether the revision has passed its trial. `steps`: those of the current attempt.
// `silent_for`: the time for which all ranks of a program that reports no steps have been up.
bool passes_trial(const Job& job, int64_t steps, Duration silent_for);
// Ends the trial without a rollback. `result`: one sentence, as RevisionNote::end.
void end_trial(Job& job, std::string result);

}  // namespace muster::coordinator
