// The volatile state of one live attempt: a part of each subject, rebuilt after a restart. Owned by
// Core, one for each job that has ranks.
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

  // The coordinator stood still for `time`.
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
  // While STARTING: when every rank has to be up.
  std::optional<Instant> start_deadline;
  // Once a rank has reported the loss of a peer, and none its own fault: when that is concluded.
  std::optional<Instant> victim_deadline;
  // A caller waits for a checkpoint of more steps than these.
  std::optional<int64_t> checkpoint_after;
  // The incident of the suspicion or the verdict.
  std::optional<IncidentId> incident;
  CrashEvidence crash;
};

}  // namespace muster::coordinator
