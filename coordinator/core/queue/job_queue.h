// The order in which waiting jobs are placed: higher priority first, then earlier submission. A job
// that backs off retains its position, but is skipped until its time.
//
// There is no backfill: a job that has to wait for other jobs to end is not overtaken, so large
// jobs do not starve. A job that could not run even on an empty fleet does not block the others.
#pragma once

#include <compare>
#include <optional>
#include <set>
#include <vector>

#include "common/ids.h"
#include "common/time.h"

namespace muster::coordinator {

class JobQueue {
 public:
  struct Entry {
    int32_t priority = 0;
    JobId job;
    Instant not_before{};
    // Until then the job waits for all its nodes; afterwards it may start on fewer, if it is
    // allowed to.
    Instant whole_until{};
    // Until then the remaining nodes of the job are reserved for it while another one is away.
    Instant keep_until{};
  };

  void add(JobId job, int32_t priority, Instant not_before, Instant whole_until = {},
           Instant keep_until = {});
  void remove(JobId job, int32_t priority);
  // Coordinator downtime does not count against jobs that wait for nodes: no worker could report.
  void excuse(Duration time);

  size_t size() const { return entries_.size(); }

  // Returns all entries in the order of placement, including those that back off.
  std::vector<Entry> in_order() const;
  // Returns whether `a` precedes `b`. Also applies to jobs that are not in the queue.
  static bool goes_first(const Entry& a, const Entry& b);

  // Returns the next time after `now` at which a job stops backing off, waiting for all its nodes,
  // or reserving some of them; nullopt if there is none.
  std::optional<Instant> next_ready_after(Instant now) const;

 private:
  struct GoesFirst {
    bool operator()(const Entry& a, const Entry& b) const { return goes_first(a, b); }
  };
  std::set<Entry, GoesFirst> entries_;
};

}  // namespace muster::coordinator
