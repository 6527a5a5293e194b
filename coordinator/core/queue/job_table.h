// All jobs of the coordinator by number, with the output folders and request ids that they own, and
// the jobs that changed in the current step.
//
// Callers change a job's fields through at() or find(), and then mark the job to be stored or
// published. Pure; called on one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "coordinator/core/records/caller.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/worker.h"

namespace muster::coordinator {

class JobTable {
 public:
  JobTable() = default;
  JobTable(std::map<std::string, JobId> request_ids, JobId last_id)
      : request_ids_(std::move(request_ids)), last_id_(last_id) {}

  const std::map<JobId, Job>& all() const { return jobs_; }
  const std::map<std::string, JobId>& request_ids() const { return request_ids_; }
  // Requires that the job is known.
  Job& at(JobId id) { return jobs_.at(id); }
  const Job& at(JobId id) const { return jobs_.at(id); }
  // Return the job; null if there is no such job.
  Job* find(JobId id);
  const Job* find(JobId id) const;
  // Returns the job for a request of `caller`. Errors: NotFound if there is no such job;
  // PermissionDenied if it does not belong to the caller (`purpose`, `access`: see check_access());
  // FailedPrecondition if it has ended.
  absl::StatusOr<Job*> unfinished(JobId id, const Caller& caller, std::string_view purpose,
                                  Access access = Access::kTeam);
  // Returns the job if `attempt` is its current attempt and has ranks; otherwise null.
  Job* live(JobId id, Attempt attempt);
  // Returns the live job that has placed the rank on this incarnation of `worker`; null if there is
  // no such job or the rank has ended.
  Job* owner_of(const RankId& id, const Worker& worker);
  // Returns the jobs that had an attempt and have not ended, in ascending order.
  std::vector<JobId> launched() const { return {launched_.begin(), launched_.end()}; }

  // Adds a stored job after a restart.
  Job& restore(Job job);
  // Adds a new job under the next number. `request_id` may be empty.
  Job& submit(JobSpec spec, const std::string& request_id, int64_t unix_ns);
  // Returns FailedPrecondition if an unfinished job writes to the same folder: two jobs would
  // overwrite and delete each other's checkpoints.
  absl::Status check_output_is_free(const JobSpec& spec) const;
  // Records that the job's first attempt has begun.
  void launch(JobId id) { launched_.insert(id); }
  // Releases the job's output folder and adds it to the ended jobs. Requires that the job is in a
  // terminal state.
  void end(const Job& job);
  // Removes the jobs that ended first, until at most `count_max` ended jobs with specs of at most
  // `bytes_max` are left. Returns the removed jobs.
  std::vector<JobId> forget_oldest(size_t count_max, size_t bytes_max);
  // Counts the job's specs again, after one of them has changed. Requires that the job has not
  // ended.
  void measure(const Job& job);
  // Returns bytes_of() over the specs of all jobs that have not ended.
  size_t unfinished_bytes() const { return unfinished_bytes_; }

  // Marks the job's durable record to be written.
  void store(JobId id) { changes_.stored.insert(id); }
  // Adds an exit to the job's current attempt, and marks it to be written.
  void add_exit(Job& job, RankExit exit);
  // Marks the job to be reported to its watchers.
  void publish(JobId id) { changes_.published.insert(id); }
  // Sets the job's reason, and marks the job to be stored and published.
  void note(Job& job, std::string reason);
  // Sets the job's newest incident, with the incident's current sentence.
  void set_incident(const Incident& incident);

  // The marked jobs, by number, and the added exits as (job, index in Job::exits).
  struct Changes {
    std::set<JobId> stored;
    std::vector<std::pair<JobId, size_t>> exits;
    std::set<JobId> published;
  };
  // Returns the marks since the last call, and clears them.
  Changes take_changes() { return std::exchange(changes_, {}); }

 private:
  std::map<JobId, Job> jobs_;
  std::map<std::string, JobId> request_ids_;
  JobId last_id_{0};
  // Ended jobs as (end time, job), in the order of their ends.
  std::set<std::pair<int64_t, JobId>> finished_;
  // The output folders of unfinished jobs. State from an earlier version may contain two jobs with
  // the same folder.
  std::set<std::pair<std::string, JobId>> outputs_;
  std::set<JobId> launched_;
  // The size of each job's spec, as it is contained in one of the sums.
  std::map<JobId, size_t> bytes_;
  size_t unfinished_bytes_ = 0;
  size_t finished_bytes_ = 0;
  Changes changes_;
};

}  // namespace muster::coordinator
