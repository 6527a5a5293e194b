#include "coordinator/core/incident/recovery.h"

#include <algorithm>
#include <utility>

namespace muster::coordinator {

Recovery* recovery_of(IncidentBook& incidents, const Job& job) {
  Incident* incident = job.recovering == IncidentId(0) ? nullptr : incidents.change(job.recovering);
  return incident != nullptr && incident->recovery ? &*incident->recovery : nullptr;
}

void mark_transition(IncidentBook& incidents, const Job& job, JobTransition transition,
                     int64_t unix_ns) {
  Recovery* recovery = recovery_of(incidents, job);
  if (recovery == nullptr) return;
  if (transition == JobTransition::kStarted) begin_attempt(*recovery, unix_ns);
  if (transition == JobTransition::kUp) mark(*recovery, RecoveryMoment::kUp, unix_ns);
  if (transition == JobTransition::kGone) mark(*recovery, RecoveryMoment::kStopped, unix_ns);
}

void begin_recovery(IncidentBook& incidents, Job& job, IncidentId id, const FaultMoments& moments,
                    int64_t best_step) {
  Incident* incident = incidents.change(id);
  if (incident == nullptr) return;
  Recovery& recovery = incident->recovery.emplace();
  mark(recovery, RecoveryMoment::kProgress, moments.progress_unix_ns);
  mark(recovery, RecoveryMoment::kDetected, moments.detected_unix_ns);
  mark(recovery, RecoveryMoment::kEvidence, moments.evidence_unix_ns);
  mark(recovery, RecoveryMoment::kDecided, moments.decided_unix_ns);
  recovery.best_step = best_step;
  for (const RankState& rank : job.ranks)
    recovery.best_step = std::max(recovery.best_step, rank.step);
  job.recovering = incident->id;
  incidents.await(incident->id);
}

bool follow_recovery(IncidentBook& incidents, const Job& job, const AttemptWatch& steps,
                     const RankProgress& progress, AttemptWatch::News news, int64_t unix_ns) {
  const Incident* incident = incidents.find(job.recovering);
  if (incident == nullptr || !incident->recovery) return false;
  const bool further = steps.newest_step() > incident->recovery->best_step;
  if (incident->recovery->attempts == 0) {
    // A rank that survived the fault may complete further steps before it stops; this is not a
    // recovery.
    if (further) recovery_of(incidents, job)->best_step = steps.newest_step();
    return false;
  }
  const bool caught_up = progress.step_times.total() > 0 && further;
  if (!news.loaded && !news.first_step && !caught_up) return false;
  Recovery* recovery = recovery_of(incidents, job);
  const int64_t progress_ns = unix_ns - progress.last_progress_age.count();
  if (news.loaded) mark(*recovery, RecoveryMoment::kLoaded, unix_ns - progress.phase_age.count());
  if (news.first_step || caught_up) {
    const auto step_ns = static_cast<int64_t>(std::clamp(progress.step_seconds, 0.0, 1e6) * 1e9);
    mark(*recovery, RecoveryMoment::kLoaded, progress_ns - step_ns);
    mark(*recovery, RecoveryMoment::kFirstStep, progress_ns);
    recovery->restored_step = steps.base_step();
    // If the fault also ended the coordinator, the newest steps are not known, but at least the
    // saved steps were completed.
    recovery->best_step = std::max(recovery->best_step, recovery->restored_step);
  }
  if (caught_up) mark(*recovery, RecoveryMoment::kCaughtUp, progress_ns);
  return caught_up;
}

bool end_recovery(IncidentBook& incidents, Job& job, IncidentId interrupted_by,
                  bool shows_no_steps) {
  if (job.recovering == IncidentId(0)) return false;
  if (Recovery* recovery = recovery_of(incidents, job)) {
    const bool back = shows_no_steps && recovery->at(RecoveryMoment::kUp) != 0;
    if (!back && recovery->at(RecoveryMoment::kCaughtUp) == 0)
      recovery->interrupted_by = interrupted_by;
    recovery->over = true;
  }
  incidents.settle(std::exchange(job.recovering, IncidentId(0)));
  return true;
}

}  // namespace muster::coordinator
