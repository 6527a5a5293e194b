#include "coordinator/core/queue/job_queue.h"

#include <utility>

namespace muster::coordinator {

bool JobQueue::goes_first(const Entry& a, const Entry& b) {
  if (a.priority != b.priority) return a.priority > b.priority;
  return a.job < b.job;
}

void JobQueue::add(JobId job, int32_t priority, Instant not_before, Instant whole_until,
                   Instant keep_until) {
  entries_.insert({priority, job, not_before, whole_until, keep_until});
}

void JobQueue::remove(JobId job, int32_t priority) { entries_.erase({priority, job, {}, {}, {}}); }

void JobQueue::excuse(Duration time) {
  std::set<Entry, GoesFirst> excused;
  for (Entry entry : entries_) {
    entry.whole_until += time;
    entry.keep_until += time;
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
    for (const Instant then : {entry.not_before, entry.whole_until, entry.keep_until}) {
      if (then > now && (!next || then < *next)) next = then;
    }
  }
  return next;
}

}  // namespace muster::coordinator
