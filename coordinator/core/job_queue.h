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
  };

  void add(JobId job, int32_t priority, Instant not_before);
  void remove(JobId job, int32_t priority);

  size_t size() const { return entries_.size(); }

  // In the order of placement, those that back off included.
  std::vector<Entry> in_order() const;

  // When the next job stops backing off; nothing when none does at `now`.
  std::optional<Instant> next_ready_after(Instant now) const;

 private:
  struct GoesFirst {
    bool operator()(const Entry& a, const Entry& b) const;
  };
  std::set<Entry, GoesFirst> entries_;
};

}  // namespace muster::coordinator
