// The order in which waiting jobs are placed: higher priority first, then earlier submission. A job
// that backs off retains its position, but is skipped until its time.
//
// There is no backfill: a job that has to wait for other jobs to end is not overtaken, so large
// jobs do not starve. A job that could not run even on an empty fleet does not block the others.
// Pure; called on one thread at a time.
#pragma once

#include <compare>
#include <optional>
#include <set>
#include <vector>

#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/step_time.h"

namespace muster::coordinator {

class JobQueue {
 public:
  struct Entry {
    int32_t priority = 0;
    JobId job;
    Instant not_before{};
    // Until then the job waits for all its nodes; afterwards it may start on fewer, if it is
    // allowed to.
    Instant full_size_until{};
    // Until then the remaining nodes of the job are reserved for it while another one is away.
    Instant reserve_until{};
  };

  void add(JobId job, int32_t priority, Instant not_before, Instant full_size_until = {},
           Instant reserve_until = {});
  // Adds a job between two attempts. It backs off until `not_before`; its waits for its former
  // nodes begin at `back`.
  void add_former(const Job& job, Instant not_before, Instant back, const CoreOptions& options);
  // Adds a stored job after a coordinator restart, whose workers have not registered again yet.
  void restore(const Job& job, const CoreOptions& options, Instant now);
  // Continues the back-offs that began before a coordinator restart, once the time of day is known.
  void resume_backoffs(const JobTable& jobs, const CoreOptions& options, const StepTime& time);
  void remove(JobId job, int32_t priority);
  // Coordinator downtime does not count against jobs that wait for nodes: no worker could report.
  void excuse(Duration time);

  size_t size() const { return entries_.size(); }

  // Returns all entries in the order of placement, including those that back off.
  std::vector<Entry> in_order() const;
  // Returns whether `a` precedes `b`. Also applies to jobs that are not in the queue.
  static bool precedes(const Entry& a, const Entry& b);

  // Returns the next time after `now` at which a job stops backing off, waiting for all its nodes,
  // or reserving some of them; nullopt if there is none.
  std::optional<Instant> next_ready_after(Instant now) const;

 private:
  struct Precedes {
    bool operator()(const Entry& a, const Entry& b) const { return precedes(a, b); }
  };
  std::set<Entry, Precedes> entries_;
  // Jobs that were backing off when this coordinator started. Cleared when the time of day is
  // known.
  std::vector<JobId> backed_off_;
};

}  // namespace muster::coordinator
