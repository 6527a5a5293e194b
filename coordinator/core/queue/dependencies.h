// Dependencies between jobs: a job waits until other jobs have ended as it requires.
//
// A dependency refers to a job that exists when the dependent job is submitted, so there are no
// cycles. It is met or lost at the moment when that job ends, and Job::waits_for is stored together
// with that end: the record of the ended job is not needed later. Pure; called on one thread at a
// time.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "common/job/job_spec.h"
#include "coordinator/core/queue/job_table.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns whether a job that has ended in this state meets the dependency.
bool is_met(DependencyKind kind, JobState end);

// Returns the dependencies of a new job that are not met yet. Errors: NotFound if a job does not
// exist; FailedPrecondition if one has ended in a state that never meets the dependency.
absl::StatusOr<std::vector<JobDependency>> unmet_dependencies(const JobSpec& spec,
                                                              const JobTable& jobs);

// Returns the reason of a job that waits for dependencies: "waits until job 7 has succeeded".
std::string dependencies_text(const std::vector<JobDependency>& waits_for);
// Returns the reason for the end of a job whose dependency on `ended` cannot be met any more.
std::string lost_dependency_text(DependencyKind kind, const Job& ended);

// The jobs that wait for other jobs, by the jobs for which they wait.
class Dependents {
 public:
  // Adds the job for each entry of its waits_for.
  void add(const Job& job);
  // Removes the job, which has ended.
  void remove(const Job& job);
  // Removes and returns the jobs that wait for `ended`.
  std::set<JobId> take(JobId ended);

 private:
  std::map<JobId, std::set<JobId>> waiting_;
};

}  // namespace muster::coordinator
