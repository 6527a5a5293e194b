#include "coordinator/core/queue/job_queue.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {

bool JobQueue::precedes(const Entry& a, const Entry& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.job < b.job;
}

void JobQueue::add(JobId job, int32_t priority, Instant not_before, Instant full_size_until,
                   Instant reserve_until) {
  entries_.insert({priority, job, not_before, full_size_until, reserve_until});
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

void JobQueue::remove(JobId job, int32_t priority) { entries_.erase({priority, job, {}, {}, {}}); }

void JobQueue::excuse(Duration time) {
  std::set<Entry, Precedes> excused;
  for (Entry entry : entries_) {
    entry.full_size_until += time;
    entry.reserve_until += time;
    excused.insert(excused.end(), entry);
  }
  entries_ = std::move(excused);
}

std::vector<JobQueue::Entry> JobQueue::in_order() const {
  return {entries_.begin(), entries_.end()};
}

std::optional<Instant> JobQueue::next_ready_after(Instant now) const {
  std::optional<Instant> next;
  for (const Entry& entry : entries_) {
    for (const Instant then : {entry.not_before, entry.full_size_until, entry.reserve_until}) {
      if (then > now && (!next || then < *next)) next = then;
    }
  }
  return next;
}

}  // namespace muster::coordinator
