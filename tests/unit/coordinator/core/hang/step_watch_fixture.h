// Steps of a job, as progress pages of rank 0 for a StepWatch.
#pragma once

#include <vector>

#include "coordinator/core/hang/step_watch.h"

namespace muster::coordinator {

inline constexpr Duration kWindow = std::chrono::minutes(5);

inline Job planned_job(int32_t placed = 2) {
  Job job;
  job.spec.nodes = 2;
  job.spec.planned_step_us = 1'000'000;
  job.spec.planned_communication_us = 200'000;
  job.spec.planned_checkpoint_us = 100'000;
  for (int32_t rank = 0; rank < placed; ++rank) job.placement.emplace_back().rank = Rank(rank);
  return job;
}

// The seconds of one step; `stall` is beside it.
struct StepOf {
  double seconds = 1;
  double communication = 0.2;
  double data = 0;
  double stall = 0.1;
  double tokens = 0;
};

// Steps of rank 0, with a page after each.
class Steps {
 public:
  explicit Steps(const Job& job = planned_job()) : watch(job, kWindow) {
    page.phase = Phase::kStep;
  }

  void run(int steps, StepOf step = {}) {
    for (int i = 0; i < steps; ++i) {
      page.step_times.add(step.seconds);
      page.step_seconds = step.seconds;
      tokens += step.tokens;
      // As the worker computes it: the mean of all steps, by the time of the newest one.
      page.tokens_per_second = tokens / static_cast<double>(page.step_times.total()) / step.seconds;
      page.collective_wait_seconds += step.communication;
      page.data_wait_seconds += step.data;
      page.checkpoints.stall_seconds += step.stall;
      if (step.stall > 0) ++page.checkpoints.saved;
      now += std::chrono::duration_cast<Duration>(
          std::chrono::duration<double>(step.seconds + step.stall));
      report();
    }
  }
  void report() {
    const StepWatch::Findings found = watch.observe(page, now);
    if (found.plan) findings.push_back(*found.plan);
    if (found.history) history.push_back(*found.history);
    windows += found.adds_to_history ? 1 : 0;
  }

  StepWatch watch;
  RankProgress page;
  double tokens = 0;  // since the attempt began
  Instant now{};
  int windows = 0;                    // in the history
  std::vector<StepFinding> findings;  // against the plan
  std::vector<StepFinding> history;
};

}  // namespace muster::coordinator
