#include "coordinator/core/recovery/revisions.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "common/process/exit_code.h"
#include "common/text/error_family.h"
#include "coordinator/core/recovery/log_verdict.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

RevisionNote* note_of(Job& job, int32_t revision) {
  const auto found = std::ranges::find(job.revisions, revision, &RevisionNote::revision);
  return found == job.revisions.end() ? nullptr : &*found;
}

void finish_note(Job& job, std::string end) {
  if (RevisionNote* note = note_of(job, job.revision)) note->end = std::move(end);
}

// Adds the note, and forgets the oldest one beyond the bound, but not that of the job's revision.
void add_note(Job& job, RevisionNote note) {
  if (job.revisions.size() >= kRevisionsKeptMax) {
    const auto oldest = std::ranges::find_if(
        job.revisions, [&](const RevisionNote& known) { return known.revision != job.revision; });
    job.revisions.erase(oldest);
  }
  job.revisions.push_back(std::move(note));
}

enum class TrialFault {
  kElsewhere,  // nodes, networks and storage fail whatever the revision is
  kUnsure,     // the revision or something else is the cause
  kRevision,
};

TrialFault trial_fault_of(const Job& job, const Fault& fault) {
  if (is_preempted(fault) || fault.is_unreported || !fault.peer.value().empty() ||
      ended_as(fault, ExitCode::kStorageAway))
    return TrialFault::kElsewhere;
  if (fault.kind != IncidentKind::kRankDied && fault.kind != IncidentKind::kHang &&
      fault.kind != IncidentKind::kOutOfMemory && fault.kind != IncidentKind::kNotFinite)
    return TrialFault::kElsewhere;
  const ErrorFamily* family = family_of(fault);
  // Files and modules that are missing before the first step are those of the revision.
  if (is_of_hardware(fault) || (job.trial->steps() >= 1 && may_be_outage(fault)))
    return TrialFault::kElsewhere;
  // The kernel, an operator or a failing memory page kills ranks, too.
  constexpr int32_t kSigbus = 7, kSigkill = 9;
  const bool was_killed = fault.kind == IncidentKind::kRankDied &&
                          (fault.signal == kSigbus || fault.signal == kSigkill);
  const bool lost_a_peer = ended_as(fault, ExitCode::kPeerLost) ||
                           (family != nullptr && family->origin == ErrorOrigin::kPeer);
  const bool may_pass = family != nullptr && family->origin == ErrorOrigin::kPassing;
  return was_killed || lost_a_peer || may_pass ? TrialFault::kUnsure : TrialFault::kRevision;
}

// Returns whether the revision has had a fault of open origin before its newest one.
bool had_an_unsure_fault(const Job& job) {
  for (size_t i = job.faults.size() - 1; i > 0; --i) {
    const Fault& before = job.faults[i - 1];
    if (before.revision != job.revision) break;
    if (trial_fault_of(job, before) == TrialFault::kUnsure) return true;
  }
  return false;
}

// Returns whether the revision on trial may be the cause of the newest fault.
bool may_be_of_revision(const Job& job) {
  return job.trial && !job.faults.empty() && job.faults.back().revision == job.revision &&
         job.trial->steps() < job.trial->rollback_steps &&
         trial_fault_of(job, job.faults.back()) != TrialFault::kElsewhere;
}

// Returns whether the job has completed the steps of the former revision, which has fewer steps
// than the one on trial: after a rollback it would end as if it had succeeded.
bool is_beyond_former(const Job& job) {
  const Fault& fault = job.faults.back();
  return job.trial->former.steps >= 1 && job.trial->former.steps < job.spec.steps &&
         std::max({fault.job_step, fault.checkpoint_step, fault.resumed_from}) >=
             job.trial->former.steps;
}

std::string failure_text(const Job& job) {
  const int64_t steps = job.trial->steps();
  return steps < 1 ? "failed before its first step"
                   : absl::StrCat("failed after ", steps, steps == 1 ? " step" : " steps");
}

}  // namespace

Fault fault_of_update(const Job& job, int64_t unix_ns) {
  Fault fault;
  fault.exit_code = to_int(ExitCode::kPreempted);
  fault.unix_ns = unix_ns;
  fault.is_planned = fault.for_update = true;
  for (const RankState& rank : job.ranks) fault.last_step = std::max(fault.last_step, rank.step);
  fault.message = absl::StrCat("revision ", job.update->note.revision,
                               " is rolled in: ", job.update->note.change);
  return fault;
}

bool has_saved_since(const Job& job, int64_t after_step) {
  bool has_saved = false;
  for (const RankState& rank : job.ranks) {
    // The rank may write its first checkpoint now, or leave checkpoints to other ranks.
    if (rank.checkpoint_step < 0 && rank.phase != Phase::kCheckpointSave &&
        rank.checkpoints.saving_mib == 0)
      continue;
    if (rank.checkpoint_step <= after_step) return false;
    has_saved = true;
  }
  return has_saved;
}

std::optional<int64_t> newest_checkpoint_of(const Job& job) {
  int64_t step = -1;
  if (!job.faults.empty())
    step = std::max(job.faults.back().checkpoint_step, job.faults.back().resumed_from);
  for (const RankState& rank : job.ranks) {
    if (rank.last_progress == Instant{} && rank.life != RankState::Life::kExited)
      return std::nullopt;
    step = std::max(step, rank.checkpoint_step);
  }
  return step;
}

void adopt_update(Job& job) {
  JobUpdate update = *std::exchange(job.update, std::nullopt);
  if (job.trial)
    finish_note(job, fails_trial(job)
                         ? absl::StrCat(failure_text(job), ": ", job.faults.back().message,
                                        "; revision ", update.note.revision, " replaced it")
                         : "replaced during its trial");
  if (job.attempt > Attempt(0) && update.rollback_steps > 0) {
    Trial trial{job.spec, job.revision, update.rollback_steps};
    if (job.trial) {
      trial.former = std::move(job.trial->former);
      trial.former_revision = job.trial->former_revision;
    }
    job.trial = std::move(trial);
  } else {
    job.trial.reset();
    update.note.end = "rolled in without a trial";
  }
  job.spec = std::move(update.spec);
  job.revision = update.note.revision;
  job.restarts_used.clear();
  add_note(job, std::move(update.note));
}

void drop_update(Job& job, std::string end) {
  RevisionNote note = std::exchange(job.update, std::nullopt)->note;
  note.end = std::move(end);
  note.is_undone = true;
  add_note(job, std::move(note));
}

bool was_withdrawn(const Job& job, int32_t revision) {
  return std::ranges::any_of(job.revisions, [&](const RevisionNote& note) {
    return note.revision == revision && note.is_undone && note.end == kWithdrawn;
  });
}

bool may_fail_trial(const Job& job) { return may_be_of_revision(job) && !is_beyond_former(job); }

std::string no_rollback_text(const Job& job) {
  if (!may_be_of_revision(job) || !is_beyond_former(job)) return "";
  return absl::StrCat("; the job does not return to revision ", job.trial->former_revision,
                      ", because it is beyond the last step of that revision, ",
                      job.trial->former.steps);
}

bool fails_trial(const Job& job) {
  return may_fail_trial(job) && (trial_fault_of(job, job.faults.back()) == TrialFault::kRevision ||
                                 had_an_unsure_fault(job));
}

std::string rollback_text(const Job& job) {
  return absl::StrCat("revision ", job.revision, " ", failure_text(job),
                      ", so the job returns to revision ", job.trial->former_revision, ": ",
                      job.faults.back().message);
}

void roll_back(Job& job) {
  finish_note(job, rollback_text(job));
  // Revisions that were replaced during their trials are part of the failed one.
  for (RevisionNote& note : job.revisions) {
    if (note.revision <= job.trial->former_revision || note.is_undone) continue;
    note.is_undone = true;
    if (note.revision != job.revision)
      absl::StrAppend(&note.end, "; rolled back with revision ", job.revision);
  }
  Trial trial = *std::exchange(job.trial, std::nullopt);
  job.spec = std::move(trial.former);
  job.revision = trial.former_revision;
  job.restarts_used.clear();
}

bool passes_trial(const Job& job, int64_t step) {
  return job.trial && job.trial->steps_until(std::max(step, job.trial->newest_step)) >=
                          job.trial->rollback_steps;
}

void end_trial(Job& job, std::string result) {
  finish_note(job, std::move(result));
  job.trial.reset();
}

}  // namespace muster::coordinator
