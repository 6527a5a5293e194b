// Revisions of a job's spec: requests, the end of the attempt for an update, and trials.
#include <absl/strings/str_cat.h>

#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/core.h"
#include "coordinator/core/queue/job_update.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/revisions.h"

namespace muster::coordinator {

void Core::on(const JobUpdateRequested& event) {
  const auto reply = [&](absl::Status status) {
    actions_.push_back(Reply{event.token, std::move(status), event.job});
  };
  const auto found = jobs_.unfinished(event.job);
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
  jobs_.measure(job);
  const std::string text =
      absl::StrCat("revision ", job.update->note.revision, " (", job.update->note.change, ")");
  if (job.state == JobState::kQueued) {
    adopt_update(job);
    jobs_.measure(job);
    jobs_.note(job, absl::StrCat(text, " begins with its next attempt"));
    schedule_needed_ = true;
  } else if (job.update->time == UpdateTime::kAtCheckpoint && is_undecided(job)) {
    jobs_.note(job, absl::StrCat(text, " follows after the next checkpoint"));
  } else if (is_undecided(job)) {
    leave_for_update(job);
  } else {
    jobs_.note(job, absl::StrCat(job.reason, "; ", text, " follows"));
  }
  reply(absl::OkStatus());
}

// An attempt that is ending already continues to end, and the job restarts unchanged.
void Core::withdraw_update(const JobUpdateRequested& event, Job& job) {
  absl::Status status;
  if (job.update) {
    jobs_.note(job, absl::StrCat("the update to revision ", job.update->note.revision, " (",
                                 job.update->note.change, ") was withdrawn"));
    job.update.reset();
    jobs_.measure(job);
  } else {
    status = absl::FailedPreconditionError(absl::StrCat(
        "job ", job.id.value(), " has no pending update: its revision is ", job.revision,
        job.trial ? ", which is on trial; update it again with the former values" : ""));
  }
  actions_.push_back(Reply{event.token, std::move(status), job.id});
}

// Ends the attempt: its ranks save a checkpoint and leave, as for a drain.
void Core::leave_for_update(Job& job) {
  const bool saves = job.update->time != UpdateTime::kNow;
  fault(job, fault_of_update(job, time_.unix_ns), saves ? options_.grow_grace : Duration::zero());
}

// Called after each page of a rank.
void Core::watch_revision(Job& job, const RankProgress& progress) {
  if (job.update && job.update->time == UpdateTime::kAtCheckpoint && is_running(job.state) &&
      is_undecided(job) && job.exits.empty() && progress.checkpoint_step > job.update->after_step)
    return leave_for_update(job);
  if (!job.trial) return;
  const AttemptWatch& steps = attempts_.at(job.id).progress.steps;
  if (!steps.made_a_step()) return;
  if (!passes_trial(job, steps.newest_step() - steps.base_step(), Duration::zero())) return;
  end_trial(job, absl::StrCat("passed its trial of ", job.trial->rollback_steps, " steps"));
  jobs_.measure(job);
  jobs_.store(job.id);
  jobs_.publish(job.id);
}

void Core::end_silent_trials() {
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    if (!job.trial || job.state != JobState::kRunning || job.up_unix_ns == 0 ||
        !attempts_.at(id).progress.hang.is_silent())
      continue;
    if (!passes_trial(job, 0, Duration(time_.unix_ns - job.up_unix_ns))) continue;
    end_trial(job,
              absl::StrCat("passed its trial: it has run for ", to_seconds(kSilentTrial), " s"));
    jobs_.measure(job);
    jobs_.store(id);
    jobs_.publish(id);
  }
}

}  // namespace muster::coordinator
