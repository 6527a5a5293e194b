#include "coordinator/core/queue/job_queue.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

bool JobQueue::precedes(const Entry& a, const Entry& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  if (a.use_of_team != b.use_of_team) return a.use_of_team < b.use_of_team;
  if (a.use_of_user != b.use_of_user) return a.use_of_user < b.use_of_user;
  return a.job < b.job;
}

void JobQueue::add(JobId job, int32_t priority, Instant not_before, Instant full_size_until,
                   Instant reserve_until) {
  const auto [entry, is_new] =
      entries_.insert({priority, job, not_before, full_size_until, reserve_until});
  if (!is_new) return;
  for (const auto time : kTimes)
    if ((*entry).*time != Instant{}) times_.insert((*entry).*time);
}

void JobQueue::add_former(const Job& job, Instant not_before, Instant back,
                          const CoreOptions& options) {
  add(job.id, job.spec.priority, not_before, back + options.full_size_wait,
      hold_until(job, back, options.reservation_time));
}

void JobQueue::restore(const Job& job, const CoreOptions& options, Instant now) {
  add_former(job, now, now + options.worker_lease, options);
  if (job.not_before_unix_ns > 0) backed_off_.push_back(job.id);
}

// A back-off never exceeds the maximum, even if the clocks are wrong.
void JobQueue::resume_backoffs(const JobTable& jobs, const CoreOptions& options,
                               const CoreTime& time) {
  if (time.unix_ns == 0) return;
  for (const JobId id : std::exchange(backed_off_, {})) {
    const Job* job = jobs.find(id);
    if (job == nullptr || job->state != JobState::kQueued) continue;
    const Duration left =
        std::clamp(Duration(job->not_before_unix_ns - time.unix_ns), Duration::zero(),
                   std::max({kBackoffMax, kPreemptedDelay, kMendedDelayMax}));
    remove(id, job->spec.priority);
    add_former(*job, time.now + left, time.now + std::max(left, options.worker_lease), options);
  }
}

void JobQueue::remove(JobId job, int32_t priority) {
  const auto entry = entries_.find({priority, job, {}, {}, {}});
  if (entry == entries_.end()) return;
  for (const auto time : kTimes)
    if ((*entry).*time != Instant{}) times_.erase(times_.find((*entry).*time));
  entries_.erase(entry);
}

void JobQueue::excuse(Duration time) {
  times_.clear();
  for (Entry entry : std::exchange(entries_, {})) {
    add(entry.job, entry.priority, entry.not_before, entry.full_size_until + time,
        entry.reserve_until + time);
  }
}

std::vector<JobQueue::Entry> JobQueue::in_order() const {
  return {entries_.begin(), entries_.end()};
}

std::optional<Instant> JobQueue::next_ready_after(Instant now) const {
  const auto next = times_.upper_bound(now);
  return next == times_.end() ? std::nullopt : std::optional(*next);
}

}  // namespace muster::coordinator
