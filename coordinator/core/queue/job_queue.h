// The order in which waiting jobs are placed: higher priority first, then earlier submission. A job
// that is backing off keeps its place but is passed over until its time.
//
// There is no backfill: a job that fits once others end is not overtaken, so large jobs do not
// starve. A job that could not run even on an empty fleet does not hold up the rest.
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
    Instant
        whole_until{};  // before, it waits for all its nodes; then fewer will do where it may have fewer
    Instant keep_until{};  // before, what is left of its nodes is kept for it while another is away
  };

  void add(JobId job, int32_t priority, Instant not_before, Instant whole_until = {},
           Instant keep_until = {});
  void remove(JobId job, int32_t priority);
  // Coordinator downtime does not count against jobs that wait for nodes: no worker could report.
  void excuse(Duration time);

  size_t size() const { return entries_.size(); }

  // In the order of placement, those that back off included.
  std::vector<Entry> in_order() const;
  // The order for any jobs.
  static bool goes_first(const Entry& a, const Entry& b);

  // When the next job stops backing off, or waiting for all its nodes, or keeping some; nothing
  // when none does at `now`.
  std::optional<Instant> next_ready_after(Instant now) const;

 private:
  struct GoesFirst {
    bool operator()(const Entry& a, const Entry& b) const { return goes_first(a, b); }
  };
  std::set<Entry, GoesFirst> entries_;
};

}  // namespace muster::coordinator
