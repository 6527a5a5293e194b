// Revisions of a job's spec: changes that a user makes while the job runs. Values without
// behaviour.
//
//   request ──▶ JobUpdate (pending) ──the attempt has ended──▶ Job::spec, with a Trial
//                                                                  │ fault of its own within
//                     former spec ◀── roll back ───────────────────┤ rollback_steps
//                     no trial    ◀── rollback_steps completed ────┘
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "common/job/job_spec.h"

namespace muster::coordinator {

// The number of retained RevisionNotes: the newest ones.
constexpr size_t kRevisionsKeptMax = 32;
// The maximum of rollback_steps: more steps than a job completes in a week.
constexpr int64_t kRollbackStepsMax = 1'000'000;

// The time at which the running attempt ends for an update. Stored by number.
enum class UpdateTime {
  kAfterSave = 0,     // the ranks save a checkpoint at once, and leave
  kAtCheckpoint = 1,  // the ranks leave after the next checkpoint that they report
  kNow = 2,           // the ranks are killed, and resume from the newest checkpoint
};

// One revision, for users.
struct RevisionNote {
  int32_t revision = 0;
  std::string change;      // "learning_rate=1e-4"
  std::string request_id;  // the client's dedupe key
  int64_t unix_ns = 0;     // the time of the request
  std::string end;         // its result, in one sentence; empty: it is not known yet
  bool is_undone = false;  // the job does not have it: it was rolled back, or never rolled in

  friend bool operator==(const RevisionNote&, const RevisionNote&) = default;
};

// A revision that the next attempt takes.
struct JobUpdate {
  RevisionNote note;
  JobSpec spec;
  int64_t rollback_steps = 0;
  UpdateTime time = UpdateTime::kAfterSave;
  // For kAtCheckpoint: the ranks leave after a checkpoint of more steps. Not known until each rank
  // of the attempt has reported.
  std::optional<int64_t> after_step{};

  friend bool operator==(const JobUpdate&, const JobUpdate&) = default;
};

// The trial of the job's revision, which ends with its `rollback_steps`-th step.
struct Trial {
  JobSpec former;               // the newest revision that has passed its trial
  int32_t former_revision = 0;  // its number
  int64_t rollback_steps = 0;
  // The step from which the revision's first attempt trained, and the highest step that its ended
  // attempts have completed; -1: none. A repeated step therefore counts once.
  int64_t first_step = -1;
  int64_t newest_step = -1;

  // Returns the steps by which the revision has advanced the job if it has completed `step`.
  int64_t steps_until(int64_t step) const {
    return first_step < 0 ? 0 : std::max<int64_t>(step - first_step, 0);
  }
  int64_t steps() const { return steps_until(newest_step); }

  friend bool operator==(const Trial&, const Trial&) = default;
};

}  // namespace muster::coordinator
