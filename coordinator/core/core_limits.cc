// Dependencies between jobs, and time limits.
#include <algorithm>

#include "common/process/exit_code.h"
#include "coordinator/core/attempt/endings.h"
#include "coordinator/core/core.h"
#include "coordinator/core/recovery/time_limit.h"

namespace muster::coordinator {

// Decides about the jobs that wait for a job that has ended in this step. A job that can never
// start ends at once, which may end further jobs.
void Core::release_dependents() {
  for (size_t i = 0; i < ended_.size(); ++i) {
    const Job& ended = jobs_.at(ended_[i]);
    for (const JobId id : dependents_.take(ended.id)) {
      Job& job = jobs_.at(id);
      const auto dependency = std::ranges::find(job.waits_for, ended.id, &JobDependency::job);
      if (!is_met(dependency->kind, ended.state)) {
        queue_.remove(job.id, job.spec.priority);
        finish(job, JobState::kCancelled, to_int(ExitCode::kInterrupted),
               lost_dependency_text(dependency->kind, ended));
        continue;
      }
      job.waits_for.erase(dependency);
      jobs_.note(job, job.waits_for.empty() ? "its dependencies are met; waits for a placement"
                                            : dependencies_text(job.waits_for));
      schedule_needed_ = true;
    }
  }
  ended_.clear();
}

// Returns the time for which the job may still have ranks; nullopt if it has no limit.
std::optional<Duration> Core::time_left(const Job& job) const {
  if (job.spec.time_limit_seconds == 0) return std::nullopt;
  const Duration used = table_of(account_of(job, time_.now)).running();
  return std::chrono::seconds(job.spec.time_limit_seconds) - used;
}

// Returns the time at which the nodes of the running job are free at the latest; nullopt if it has
// no limit.
std::optional<Instant> Core::latest_end(const Job& job) const {
  const std::optional<Duration> left = time_left(job);
  if (!left) return std::nullopt;
  return time_.now + std::max(*left, Duration::zero()) + kEndMargin;
}

// Returns the latest ends of the jobs that have ranks and a time limit.
JobEnds Core::ends_by_limit() const {
  JobEnds ends;
  for (const JobId id : attempts_.jobs())
    if (const auto end = latest_end(jobs_.at(id))) ends.emplace(id, *end);
  return ends;
}

// Returns the time at which all these jobs, which have time limits, have ended.
Instant Core::all_ended_by(const std::vector<JobId>& backfilled) const {
  Instant last = time_.now;
  for (const JobId id : backfilled) last = std::max(last, latest_end(jobs_.at(id)).value_or(last));
  return last;
}

// Orders the ranks of jobs whose time limit is nearly over to save and leave. Ranks that have not
// left at its end are killed.
void Core::end_at_time_limits() {
  for (const JobId id : attempts_.jobs()) {
    Job& job = jobs_.at(id);
    if (!is_undecided(job)) continue;
    const std::optional<Duration> left = time_left(job);
    if (!left || *left > time_limit_lead(job, options_.grow_grace)) continue;
    fault(job, fault_of_time_limit(job, time_.unix_ns), std::max(*left, kTimeLimitGraceMin));
    settle(job);
  }
}

}  // namespace muster::coordinator
