// All jobs that the coordinator knows, by number; which output folders and request ids they own;
// and which of them changed in the current step.
//
// Changes of a job's fields go through at() or find(); the caller marks what has to be stored or
// published. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/ids.h"
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
  // Null: there is no such job.
  Job* find(JobId id);
  const Job* find(JobId id) const;
  // NotFound, or FailedPrecondition for a job that has ended.
  absl::StatusOr<Job*> unfinished(JobId id);
  // The job, if `attempt` is its current one and has ranks; else null.
  Job* live(JobId id, Attempt attempt);
  // The live job that placed the rank on this incarnation of `worker`, if the rank has not ended.
  Job* owner_of(const RankId& id, const Worker& worker);
  // The jobs that have had an attempt and have not ended.
  std::vector<JobId> launched() const;

  // Adds a job as it was stored.
  Job& restore(Job job);
  // Adds a new job under the next number. `request_id` may be empty.
  Job& submit(JobSpec spec, const std::string& request_id, int64_t unix_ns);
  // FailedPrecondition: an unfinished job writes to that folder. Two jobs that write checkpoints to
  // one folder would overwrite and delete each other's.
  absl::Status check_output_is_free(const JobSpec& spec) const;
  // Requires that the job is in a terminal state.
  void end(const Job& job);
  // Removes the jobs that ended first, until at most `count_max` ended ones are left.
  std::vector<JobId> forget_oldest(size_t count_max);

  // Marks the job's durable record to be written.
  void store(JobId id) { changes_.stored.insert(id); }
  // Marks the job for its watchers.
  void publish(JobId id) { changes_.published.insert(id); }
  // Sets the job's reason; both marks.
  void note(Job& job, std::string reason);
  // Sets the newest of the job's incidents, with its current sentence.
  void set_incident(const Incident& incident);

  // In the order of their numbers.
  struct Changes {
    std::set<JobId> stored;
    std::set<JobId> published;
  };
  // Returns the marks since the last call, and clears them.
  Changes take_changes() { return std::exchange(changes_, {}); }

 private:
  std::map<JobId, Job> jobs_;
  std::map<std::string, JobId> request_ids_;
  JobId last_id_{0};
  // The time of the end comes first: oldest end first.
  std::set<std::pair<int64_t, JobId>> finished_;
  // Folders of unfinished jobs. The state of an earlier version may have two jobs of one folder.
  std::set<std::pair<std::string, JobId>> outputs_;
  Changes changes_;
};

}  // namespace muster::coordinator
