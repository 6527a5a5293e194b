// Revisions of a job's spec: requests, the end of the attempt for an update, and trials.
#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>

#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/core.h"
#include "coordinator/core/queue/job_update.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/revisions.h"

namespace muster::coordinator {
namespace {

// Returns whether a rank in this phase has not begun to train.
constexpr bool begins(Phase phase) {
  return phase == Phase::kInit || phase == Phase::kRendezvous || phase == Phase::kLoad ||
         phase == Phase::kCompile || phase == Phase::kCheckpointRestore;
}

}  // namespace

void Core::on(const JobUpdateRequested& event) {
  const auto reply = [&](absl::Status status) {
    actions_.push_back(Reply{event.token, std::move(status), event.job});
  };
  // A team member's program would run with the owner's rights on nodes that run ranks as owners.
  const auto found = jobs_.unfinished(event.job, event.caller, "update it", Access::kOwner);
  if (!found.ok()) return reply(found.status());
  Job& job = **found;
  if (event.withdraws) return withdraw_update(event, job);
  if (has_update(job, event.request_id)) return reply(absl::OkStatus());
  absl::StatusOr<JobUpdate> update = update_of(job, event, options_.limits);
  if (!update.ok()) return reply(update.status());
  const size_t bytes = bytes_of(update->spec);
  if (jobs_.unfinished_bytes() + bytes > options_.queued_bytes_max) {
    return reply(absl::ResourceExhaustedError(absl::StrCat(
        "the specs of all jobs have ", jobs_.unfinished_bytes(), " bytes and the new revision ",
        bytes, ", together at most ", options_.queued_bytes_max, "; cancel some jobs")));
  }
  job.update = *std::move(update);
  job.newest_revision = job.update->note.revision;
  const std::string text =
      absl::StrCat("revision ", job.update->note.revision, " (", job.update->note.change, ")");
  if (job.state == JobState::kQueued) {
    adopt_update(job);
    // The faults of the former revision are the reason for its back-off.
    if (std::exchange(job.not_before_unix_ns, 0) != 0) {
      queue_.remove(job.id, job.spec.priority);
      queue_.add_former(job, time_.now, time_.now, options_);
    }
    jobs_.note(job, absl::StrCat(text, " begins with its next attempt"));
    schedule_needed_ = true;
  } else if (job.update->time == UpdateTime::kAtCheckpoint && is_undecided(job)) {
    jobs_.note(job, absl::StrCat(text, " follows after the next checkpoint"));
  } else if (is_undecided(job)) {
    leave_for_update(job);
  } else {
    jobs_.note(job, absl::StrCat(job.reason, "; ", text, " follows"));
  }
  jobs_.measure(job);
  reply(absl::OkStatus());
}

// An attempt that is ending already continues to end, and the job restarts unchanged.
void Core::withdraw_update(const JobUpdateRequested& event, Job& job) {
  const auto reply = [&](absl::Status status) {
    actions_.push_back(Reply{event.token, std::move(status), job.id});
  };
  // The client repeats its request, and another update may have been made meanwhile.
  if (was_withdrawn(job, event.revision)) return reply(absl::OkStatus());
  if (!job.update) {
    return reply(absl::FailedPreconditionError(absl::StrCat(
        "job ", job.id.value(), " has no pending update: its revision is ", job.revision,
        job.trial ? ", which is on trial; update it again with the former values" : "")));
  }
  const std::string text =
      absl::StrCat("revision ", job.update->note.revision, " (", job.update->note.change, ")");
  if (event.revision != 0 && event.revision != job.update->note.revision) {
    return reply(absl::AbortedError(
        absl::StrCat("revision is ", event.revision, ", but the pending update of job ",
                     job.id.value(), " is ", text, ": repeat the command to withdraw it")));
  }
  drop_update(job, std::string(kWithdrawn));
  jobs_.measure(job);
  jobs_.note(job, absl::StrCat("the update to ", text, " was withdrawn"));
  reply(absl::OkStatus());
}

// Ends the attempt: its ranks save a checkpoint and leave, as for a drain.
void Core::leave_for_update(Job& job) {
  const bool saves = job.update->time != UpdateTime::kNow;
  fault(job, fault_of_update(job, time_.unix_ns), saves ? options_.grow_grace : Duration::zero());
}

// Called after each page of a rank.
void Core::watch_revision(Job& job, const RankProgress& progress) {
  if (awaits_checkpoint(job)) {
    std::optional<int64_t>& after = job.update->after_step;
    if (!after) {
      after = newest_checkpoint_of(job);
      if (after) jobs_.store(job.id);
    } else if (progress.checkpoint_step > *after && has_saved_since(job, *after)) {
      return leave_for_update(job);
    }
  }
  if (!job.trial) return;
  const AttemptWatch& steps = attempts_.at(job.id).progress.steps;
  if (!steps.made_a_step()) return;
  if (begin_trial_steps(job)) jobs_.store(job.id);
  if (passes_trial(job, steps.newest_step()))
    finish_passed_trial(job,
                        absl::StrCat("passed its trial of ", job.trial->rollback_steps, " steps"));
}

bool Core::awaits_checkpoint(const Job& job) const {
  return job.update && job.update->time == UpdateTime::kAtCheckpoint && is_running(job.state) &&
         is_undecided(job) && job.exits.empty();
}

// Notes the step from which the revision on trial trains. Requires an attempt that has made a step.
// Returns whether this is news.
bool Core::begin_trial_steps(Job& job) {
  if (job.trial->first_step >= 0) return false;
  job.trial->first_step = std::max<int64_t>(attempts_.at(job.id).progress.steps.base_step(), 0);
  return true;
}

void Core::finish_passed_trial(Job& job, std::string result) {
  end_trial(job, std::move(result));
  jobs_.measure(job);
  jobs_.store(job.id);
  jobs_.publish(job.id);
}

// Ends the trials of programs that report no steps, once they have run for long enough. A program
// that still loads or compiles has not shown that it runs.
void Core::end_silent_trials() {
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    if (!job.trial || job.state != JobState::kRunning || !job.spec.is_program()) continue;
    const LiveAttempt& attempt = attempts_.at(id);
    if (!attempt.up_at || time_.now - *attempt.up_at < kSilentTrial ||
        attempt.progress.steps.made_a_step())
      continue;
    const bool is_starting =
        !attempt.progress.hang.is_silent() &&
        std::ranges::any_of(job.ranks, [](const RankState& rank) { return begins(rank.phase); });
    if (is_starting) continue;
    finish_passed_trial(
        job, absl::StrCat("passed its trial: it has run for ", to_seconds(kSilentTrial), " s"));
  }
}

}  // namespace muster::coordinator
