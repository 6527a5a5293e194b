// Revisions of a job's spec (records/revision.h): rolls them in between two attempts, and rolls
// them back. Pure functions of the job's record.
//
// An attempt runs one revision from its start to its end, and attempts of a job never overlap, so
// neither do revisions. All state is in the job's record: a restarted coordinator continues at the
// same point.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/time/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A program that reports no steps passes its trial after this time with all ranks up: most programs
// that fail at their start do so within minutes.
constexpr Duration kSilentTrial = std::chrono::minutes(10);

// Returns the fault that ends the attempt so that the next one takes the pending update. It does
// not count against the job.
Fault fault_of_update(const Job& job, int64_t unix_ns);

// Returns whether the ranks have saved a checkpoint of more than `after_step` steps: each rank that
// reports checkpoints has reported one.
bool has_saved_since(const Job& job, int64_t after_step);
// Returns the steps of the newest checkpoint so far, for `after_step`; nullopt if a rank of the
// attempt has not reported yet, for example after a restart of the coordinator.
std::optional<int64_t> newest_checkpoint_of(const Job& job);

// Makes the pending update the job's revision. A job that has had an attempt begins a trial; if the
// former revision was still on trial, the one before it remains the one to return to. The job has
// all its restarts again. Requires a pending update and no attempt.
void adopt_update(Job& job);
// Drops the pending update, and keeps a note of it. `end`: one sentence, as RevisionNote::end.
void drop_update(Job& job, std::string end);
// Returns whether the update to this revision was withdrawn.
bool was_withdrawn(const Job& job, int32_t revision);
constexpr std::string_view kWithdrawn = "withdrawn before an attempt had it";

// Returns whether the newest fault may be one of the revision on trial, and not of a node, the
// network or storage: the job then returns to the former revision rather than end. False if the job
// has completed the fewer steps of the former revision, with which it would end at once.
bool may_fail_trial(const Job& job);
// Returns a clause about this for the reason of the newest fault; "" if it does not apply.
std::string no_rollback_text(const Job& job);
// Returns whether the newest fault ends the trial even if the job could restart. A fault that may
// come from elsewhere is retried once with the revision.
bool fails_trial(const Job& job);
// Returns the sentence about the rollback after the newest fault. Requires may_fail_trial().
std::string rollback_text(const Job& job);
// Returns to the revision before the trial. Requires may_fail_trial(), no pending update and no
// attempt.
void roll_back(Job& job);

// Returns whether the revision has passed its trial with the completed step `step`.
bool passes_trial(const Job& job, int64_t step);
// Ends the trial without a rollback. `result`: one sentence, as RevisionNote::end.
void end_trial(Job& job, std::string result);

}  // namespace muster::coordinator
