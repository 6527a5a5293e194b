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

void finish_note(Job& job, std::string end) {
  if (!job.revisions.empty()) job.revisions.back().end = std::move(end);
}

// Returns whether the newest fault may be one of the revision. Nodes, networks and storage fail
// whatever the revision is.
bool is_of_revision(const Job& job) {
  const Fault& fault = job.faults.back();
  if (is_preempted(fault) || !fault.peer.value().empty() || ended_as(fault, ExitCode::kStorageAway))
    return false;
  if (fault.kind != IncidentKind::kRankDied && fault.kind != IncidentKind::kHang &&
      fault.kind != IncidentKind::kOutOfMemory && fault.kind != IncidentKind::kNotFinite)
    return false;
  const ErrorFamily* family = family_of(fault);
  if (family == nullptr) return true;
  // Files and modules that are missing before the first step are those of the revision.
  return family->origin != ErrorOrigin::kNode && (job.trial->steps < 1 || !may_be_outage(fault));
}

}  // namespace

Fault fault_of_update(const Job& job, int64_t unix_ns) {
  Fault fault;
  fault.exit_code = to_int(ExitCode::kPreempted);
  fault.unix_ns = unix_ns;
  fault.is_planned = true;
  for (const RankState& rank : job.ranks) fault.last_step = std::max(fault.last_step, rank.step);
  fault.message = absl::StrCat("revision ", job.update->note.revision,
                               " is rolled in: ", job.update->note.change);
  return fault;
}

void adopt_update(Job& job) {
  JobUpdate update = *std::exchange(job.update, std::nullopt);
  if (job.trial) finish_note(job, "replaced during its trial");
  if (job.attempt > Attempt(0) && update.rollback_steps > 0) {
    Trial trial{job.spec, job.revision, update.rollback_steps, 0};
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
  job.revision = job.newest_revision = update.note.revision;
  job.restarts_used.clear();
  if (job.revisions.size() == kRevisionsKeptMax) job.revisions.erase(job.revisions.begin());
  job.revisions.push_back(std::move(update.note));
}

bool fails_trial(const Job& job) {
  if (!job.trial || job.faults.empty() || job.trial->steps >= job.trial->rollback_steps)
    return false;
  return is_of_revision(job);
}

std::string rollback_text(const Job& job) {
  const int64_t steps = job.trial->steps;
  return absl::StrCat("revision ", job.revision, " failed ",
                      steps < 1 ? "before its first step"
                                : absl::StrCat("after ", steps, steps == 1 ? " step" : " steps"),
                      ", so the job returns to revision ", job.trial->former_revision, ": ",
                      job.faults.back().message);
}

void roll_back(Job& job) {
  finish_note(job, rollback_text(job));
  if (!job.revisions.empty()) job.revisions.back().has_failed = true;
  Trial trial = *std::exchange(job.trial, std::nullopt);
  job.update.reset();
  job.spec = std::move(trial.former);
  job.revision = trial.former_revision;
  job.restarts_used.clear();
}

bool passes_trial(const Job& job, int64_t steps, Duration silent_for) {
  return job.trial &&
         (job.trial->steps + steps >= job.trial->rollback_steps || silent_for >= kSilentTrial);
}

void end_trial(Job& job, std::string result) {
  finish_note(job, std::move(result));
  job.trial.reset();
}

}  // namespace muster::coordinator
