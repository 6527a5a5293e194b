// Where each job's time goes (ledger.h), and how it comes back from faults (recovery_times.h): what the other files tell at each turn of a job.
#include <algorithm>
#include <utility>

#include "coordinator/core/core.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

void Core::open_account(const Job& job) {
  if (is_terminal(job.state)) return;
  Ledger& ledger = accounts_.open(job.id, job.account, now_);
  if (job.recovering != IncidentId(0)) incidents_.await(job.recovering);
  // State of an earlier version: its time counts from now on.
  if (ledger.has_started() || !is_live(job.state)) return;
  ledger.started(now_);
  if (is_running(job.state)) ledger.running(job.spec.is_program(), now_);
}

Account Core::account_of(const Job& job, Instant now) const {
  return accounts_.look(job.id, job.account, now);
}

void Core::account(Job& job, JobTurn turn) {
  Ledger& ledger = accounts_.of(job.id);
  Recovery* recovery = recovery_of(job);
  switch (turn) {
    case JobTurn::kStarted:
      if (recovery != nullptr) begin_attempt(*recovery, unix_ns_);
      return ledger.started(now_);
    case JobTurn::kUp:
      if (recovery != nullptr) mark(*recovery, RecoveryMoment::kUp, unix_ns_);
      return ledger.running(job.spec.is_program(), now_);
    case JobTurn::kCancelled:
      return ledger.stopping(LossCause::kNone, now_);
    case JobTurn::kGone:
      if (recovery != nullptr) mark(*recovery, RecoveryMoment::kStopped, unix_ns_);
      return ledger.gone(now_);
    case JobTurn::kEnded:
      end_recovery(job, IncidentId(0));
      ledger.ended(now_);
      job.account = ledger.account(now_, unix_ns_);
      return accounts_.close(job.id);
  }
}

// As far as its ranks tell of it, by what they say or by what they write; now where they do not.
Instant Core::last_progress_of(const Job& job) const {
  const auto launch = launches_.find(job.id);
  if (launch == launches_.end() || !launch->second.hang) return now_;
  const HangDetector& hang = *launch->second.hang;
  const bool tells = !hang.is_silent() || job.spec.hang_after_seconds > 0;
  return tells ? std::min(hang.last_progress(), now_) : now_;
}

// The newest fault, whose incident is open.
void Core::account_fault(Job& job, IncidentKind kind) {
  const Launch& launch = launches_.at(job.id);
  Ledger& ledger = accounts_.of(job.id);
  if (is_preempted(job.faults.back())) return ledger.stopping(LossCause::kPreempted, now_);
  const Instant progress = last_progress_of(job);
  if (launch.incident) begin_recovery(job, kind, progress);
  ledger.fault(kind, progress, now_);
}

void Core::begin_recovery(Job& job, IncidentKind kind, Instant last_progress) {
  const Launch& launch = launches_.at(job.id);
  end_recovery(job, *launch.incident);
  Incident* incident = incidents_.change(*launch.incident);
  if (incident == nullptr) return;
  const bool suspected = kind == IncidentKind::kHang || kind == IncidentKind::kWorkerLost;
  const Instant detected = suspected && launch.suspected > last_progress ? launch.suspected : now_;
  // What was looked at again and again was known from the first look on.
  const Instant evidence = suspected && launch.evidence > detected ? launch.evidence : now_;
  Recovery& recovery = incident->recovery.emplace();
  mark(recovery, RecoveryMoment::kProgress, unix_ns_of(last_progress));
  mark(recovery, RecoveryMoment::kDetected, unix_ns_of(detected));
  mark(recovery, RecoveryMoment::kEvidence, unix_ns_of(evidence));
  mark(recovery, RecoveryMoment::kDecided, unix_ns_);
  recovery.best_step = std::max(accounts_.of(job.id).best_step(), job.faults.back().last_step);
  for (const RankState& rank : job.ranks)
    recovery.best_step = std::max(recovery.best_step, rank.step);
  job.recovering = incident->id;
  incidents_.await(incident->id);
}

// Null: it recovers from nothing, or the record was dropped for newer ones.
Recovery* Core::recovery_of(const Job& job) {
  Incident* incident =
      job.recovering == IncidentId(0) ? nullptr : incidents_.change(job.recovering);
  return incident != nullptr && incident->recovery ? &*incident->recovery : nullptr;
}

// Who ran and tells nothing of its steps had come back.
void Core::end_recovery(Job& job, IncidentId interrupted_by) {
  if (job.recovering == IncidentId(0)) return;
  const auto launch = launches_.find(job.id);
  const bool tells_nothing =
      launch != launches_.end() && launch->second.hang && launch->second.hang->is_silent();
  if (Recovery* recovery = recovery_of(job)) {
    const bool back = tells_nothing && recovery->at(RecoveryMoment::kUp) != 0;
    if (!back && recovery->at(RecoveryMoment::kCaughtUp) == 0)
      recovery->interrupted_by = interrupted_by;
    recovery->over = true;
  }
  incidents_.settle(std::exchange(job.recovering, IncidentId(0)));
  persist_.insert(job.id);
}

void Core::follow_recovery(Job& job, const RankProgress& progress, AttemptWatch::News news) {
  const AttemptWatch& attempt = *launches_.at(job.id).attempt;
  const Incident* incident = incidents_.find(job.recovering);
  if (incident == nullptr || !incident->recovery) return;
  const bool further = attempt.newest_step() > incident->recovery->best_step;
  if (incident->recovery->attempts == 0) {
    // A rank that the fault has left running for now goes further; this brings nothing back.
    if (further) recovery_of(job)->best_step = attempt.newest_step();
    return;
  }
  const bool caught_up = progress.step_times.total() > 0 && further;
  if (!news.loaded && !news.first_step && !caught_up) return;
  Recovery* recovery = recovery_of(job);
  const int64_t progress_ns = unix_ns_ - progress.last_progress_age.count();
  if (news.loaded) mark(*recovery, RecoveryMoment::kLoaded, unix_ns_ - progress.phase_age.count());
  if (news.first_step || caught_up) {
    const auto step_ns = static_cast<int64_t>(std::clamp(progress.step_seconds, 0.0, 1e6) * 1e9);
    mark(*recovery, RecoveryMoment::kLoaded, progress_ns - step_ns);
    mark(*recovery, RecoveryMoment::kFirstStep, progress_ns);
    recovery->restored_step = attempt.base_step();
    // Of a fault that took the coordinator along, the newest steps are not known; they were at least those that were saved.
    recovery->best_step = std::max(recovery->best_step, recovery->restored_step);
  }
  if (!caught_up) return;
  mark(*recovery, RecoveryMoment::kCaughtUp, progress_ns);
  end_recovery(job, IncidentId(0));
}

void Core::account_progress(Job& job, const RankProgress& progress) {
  const uint64_t made = progress.step_times.total();
  const auto ago = [this](Duration age) {
    return now_ - std::clamp(age, Duration::zero(), now_.time_since_epoch());
  };
  accounts_.of(job.id).observe(
      {.speaks_for_job = progress.rank == Rank(0),
       .phase = progress.phase,
       .phase_start = ago(progress.phase_age),
       // Of a program whose output says nothing of it, either, all is progress.
       .last_progress = job.spec.is_program() && job.spec.hang_after_seconds == 0
                            ? now_
                            : ago(progress.last_progress_age),
       .step = progress.step,
       .steps_made = made,
       .steps_seconds = progress.step_times.seconds,
       .stall_seconds = progress.checkpoints.stall_seconds},
      now_);
  accounts_.of(job.id).hear_checkpoint(progress.rank == Rank(0), progress.checkpoint_step,
                                       progress.checkpoints.saved, unix_ns_);
  Launch& launch = launches_.at(job.id);
  const AttemptWatch::News news = launch.attempt->observe(
      static_cast<size_t>(progress.rank.value()), progress.phase, progress.step, made);
  if (job.recovering != IncidentId(0)) follow_recovery(job, progress, news);
  if (news.first_step || accounts_.is_due(job.id, now_)) persist_.insert(job.id);
}

}  // namespace muster::coordinator
