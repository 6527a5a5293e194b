// The volatile state of one live attempt, with one member for each subject. Rebuilt after a
// coordinator restart. Owned by Core, one instance for each job that has ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "common/time.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/fleet/unkillable.h"
#include "coordinator/core/hang/attempt_progress.h"
#include "coordinator/core/hang/suspicion.h"
#include "coordinator/core/incident/crash_evidence.h"
#include "coordinator/core/liveness/reach.h"
#include "coordinator/core/placement/growth.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct LiveAttempt {
  LiveAttempt(const CoreOptions& options, const Job& job, Instant now)
      : progress(options, job, now), growth(now) {
    reach.next_check = now;
    for (const RankPlacement& rank : job.placement) {
      ranks[rank.worker].push_back(rank.rank);
      if (job.ranks[static_cast<size_t>(rank.rank.value())].life == RankState::Life::kExited)
        progress.forget(rank.rank);
    }
  }

  // Excludes coordinator downtime: extends every deadline by `time`.
  void excuse(Duration time) {
    progress.hang.excuse(time);
    growth.excuse(time);
    suspicion.excuse(time);
    kill.excuse(time);
    if (start_deadline) *start_deadline += time;
    if (victim_deadline) *victim_deadline += time;
  }
  ReachView view(const Job& job) const {
    return {job, ranks, progress.hang, victim_deadline.has_value()};
  }

  RanksByWorker ranks;
  AttemptProgress progress;
  Growth growth;
  HangSuspicion suspicion;
  Reach reach;
  KillDeadline kill;
  // Set while STARTING: the deadline for every rank to be up.
  std::optional<Instant> start_deadline;
  // Set when a rank has reported the loss of a peer and no rank has reported a fault of its own:
  // the time at which the attempt is concluded without a culprit.
  std::optional<Instant> victim_deadline;
  // Set while a caller waits for a checkpoint: the checkpoint must contain more steps than this.
  std::optional<int64_t> checkpoint_after;
  // The incident of the suspicion or the verdict.
  std::optional<IncidentId> incident;
  CrashEvidence crash;
};

}  // namespace muster::coordinator
