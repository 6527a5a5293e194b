// The live attempts of the coordinator, one for each job that has ranks. Pure; called on one thread
// at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/attempt/live_attempt.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/incident/incident_book.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

class AttemptTable {
 public:
  const std::map<JobId, LiveAttempt>& all() const { return attempts_; }
  std::map<JobId, LiveAttempt>& all() { return attempts_; }
  // Returns the jobs that have an attempt, by number.
  std::vector<JobId> jobs() const;
  // Requires that the job has an attempt.
  LiveAttempt& at(JobId id) { return attempts_.at(id); }
  const LiveAttempt& at(JobId id) const { return attempts_.at(id); }
  // Return the job's attempt; null if it has none.
  LiveAttempt* find(JobId id);
  const LiveAttempt* find(JobId id) const;
  // Returns the unreachable workers of the job's attempt; null if the job has no attempt.
  const std::set<WorkerName>* unreachable(JobId id) const;

  // Begins an attempt of a job whose ranks are placed.
  LiveAttempt& begin(const Job& job, const CoreOptions& options, Instant now);
  // Rebuilds the attempt of a stored job after a restart, and the states of its ranks. A job that
  // was SUSPECT or DUMPING becomes RUNNING, because the earlier samples are not known.
  LiveAttempt& restore(Job& job, const CoreOptions& options, Instant now);
  // Ends the attempt, if the job has one. The next attempt with as many ranks of the same revision
  // compares its ranks with the times of this one.
  void end(const Job& job, IncidentBook& incidents);
  // Ends the attempt of a job that gets no other one.
  void end_last(const Job& job, IncidentBook& incidents);

  // Returns how long a worker must be silent before the stacks of other ranks may confirm the loss
  // of its ranks. `missing`: the number of the job's unreachable workers. The time is shorter if
  // other nodes are free, because a longer wait would waste the job's remaining nodes. If no node
  // is free, the job has to wait anyway.
  Duration loss_after(const Job& job, size_t missing, const JobTable& jobs, const Fleet& fleet,
                      const NodeBook& nodes, const CoreOptions& options,
                      const CoreTime& time) const;
  // Returns the time from which the stacks of other ranks may confirm the loss of all unreachable
  // workers of the job; the start of the clock if all workers are reachable.
  Instant loss_confirmable_at(const Job& job, const JobTable& jobs, const Fleet& fleet,
                              const NodeBook& nodes, const CoreOptions& options,
                              const CoreTime& time) const;

  // Excludes coordinator downtime of `time` that ended at `now`: extends every deadline, one that
  // began meanwhile by the time since then.
  void excuse(Duration time, Instant now);
  std::optional<Instant> next_deadline(const JobTable& jobs, const Fleet& fleet, Instant now) const;

 private:
  // The ranks' times in a job's earlier attempts.
  struct Times {
    RankHistory ranks;
    int32_t revision = 0;
  };

  std::map<JobId, LiveAttempt> attempts_;
  std::map<JobId, Times> earlier_;
};

}  // namespace muster::coordinator
