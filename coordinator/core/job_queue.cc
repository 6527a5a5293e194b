#include "coordinator/core/job_queue.h"

namespace muster::coordinator {

bool JobQueue::GoesFirst::operator()(const Entry& a, const Entry& b) const {
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.job < b.job;
}

void JobQueue::add(JobId job, int32_t priority, Instant not_before) {
  entries_.insert({priority, job, not_before});
}

void JobQueue::remove(JobId job, int32_t priority) { entries_.erase({priority, job, Instant{}}); }

std::vector<JobQueue::Entry> JobQueue::in_order() const {
  return {entries_.begin(), entries_.end()};
}

std::optional<Instant> JobQueue::next_ready_after(Instant now) const {
  std::optional<Instant> next;
  for (const Entry& entry : entries_) {
    if (entry.not_before <= now) continue;
    if (!next || entry.not_before < *next) next = entry.not_before;
  }
  return next;
}

}  // namespace muster::coordinator
