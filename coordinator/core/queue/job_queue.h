// The order in which waiting jobs are placed: higher priority first, then less usage per share
// (records/queue_policy.h), then earlier submission. A job
// that backs off retains its position, but is skipped until its back-off ends.
//
// A later job never delays a job that waits for other jobs to end, so large jobs do not starve
// (backfill: placement/placement_pass.h). A job that could not run even on an empty fleet, one that
// waits for its dependencies, or for a task of its array, does not block later jobs.
// Pure; called on one thread at a time.
#pragma once

#include <array>
#include <compare>
#include <optional>
#include <set>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

class JobQueue {
 public:
  struct Entry {
    int32_t priority = 0;
    JobId job;
    Instant not_before{};
    // The time until which the job waits for all its nodes. Afterwards a job with min_nodes may
    // start on fewer nodes.
    Instant full_size_until{};
    // The time until which the job's remaining nodes are reserved for it while another of its nodes
    // is away.
    Instant reserve_until{};
    // The usage per share of the job's team and user; -1: the job comes before those with a usage.
    // Set only during a placement pass.
    double use_of_team = -1;
    double use_of_user = -1;
  };

  void add(JobId job, int32_t priority, Instant not_before, Instant full_size_until = {},
           Instant reserve_until = {});
  // Adds a job between two attempts. The job backs off until `not_before`. The waits for its former
  // nodes begin at `back`.
  void add_former(const Job& job, Instant not_before, Instant back, const CoreOptions& options);
  // Adds a stored job after a coordinator restart, whose workers have not registered again yet.
  void restore(const Job& job, const CoreOptions& options, Instant now);
  // Continues the back-offs that began before a coordinator restart. Called in each step; has an
  // effect once the wall-clock time is known.
  void resume_backoffs(const JobTable& jobs, const CoreOptions& options, const CoreTime& time);
  void remove(JobId job, int32_t priority);
  // Extends the waiting times by coordinator downtime, in which no worker could report.
  void excuse(Duration time);

  size_t size() const { return entries_.size(); }

  // Returns all entries in the order of placement, including those that back off.
  std::vector<Entry> in_order() const;
  // Returns whether `a` precedes `b`. The entries need not be in the queue.
  static bool precedes(const Entry& a, const Entry& b);

  // Returns the next time after `now` at which a job stops backing off, waiting for all its nodes,
  // or reserving some of them; nullopt if there is none. Takes logarithmic time, because the core
  // calls it in each step.
  std::optional<Instant> next_ready_after(Instant now) const;

 private:
  struct Precedes {
    bool operator()(const Entry& a, const Entry& b) const { return precedes(a, b); }
  };
  static constexpr std::array<Instant Entry::*, 3> kTimes = {
      &Entry::not_before, &Entry::full_size_until, &Entry::reserve_until};

  std::set<Entry, Precedes> entries_;
  // The times of all entries, without those that are not set.
  std::multiset<Instant> times_;
  // Jobs that were backing off when this coordinator started. Cleared when the wall-clock time is
  // known.
  std::vector<JobId> backed_off_;
};

}  // namespace muster::coordinator
