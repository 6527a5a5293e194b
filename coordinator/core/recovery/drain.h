// How long before a planned drain of a node a job leaves it. Pure.
#pragma once

#include <algorithm>
#include <chrono>

#include "common/time/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A node gets no new ranks from this time before its drain on. Drains are often planned days ahead,
// and until then the node is of use: a job that starts there saves and moves in time. The same time
// applies to reservations of Slurm (cli/slurm/slurm_maintenance.h).
constexpr Duration kDrainAhead = std::chrono::hours(1);
// The time for a save is a multiple of the newest one of the slowest rank, because the next one may
// be slower, plus time for the step in progress and for the orders.
constexpr int kDrainSaves = 2;
constexpr Duration kDrainMargin = std::chrono::seconds(10);
// The least grace of ranks that are ordered to leave, also after the time of the drain.
constexpr Duration kDrainGraceMin = std::chrono::seconds(5);
// The most time for steps and saves. A job that needs more loses steps at a drain.
constexpr Duration kDrainLeadMax = std::chrono::minutes(30);

// Returns the time before the drain at which the ranks of `job` are ordered to save and leave: as
// late as its saves and steps permit. `grace`: the time for jobs whose saves are not known.
inline Duration drain_lead(const Job& job, Duration grace) {
  double save_seconds = 0, step_seconds = 0;
  for (const RankState& rank : job.ranks) {
    save_seconds = std::max(save_seconds, rank.checkpoints.seconds);
    step_seconds = std::max(step_seconds, rank.step_seconds);
  }
  if (save_seconds <= 0) return grace;
  const std::chrono::duration<double> saves(kDrainSaves * (save_seconds + step_seconds));
  return std::min(kDrainLeadMax, kDrainMargin + std::chrono::ceil<Duration>(saves));
}

}  // namespace muster::coordinator
