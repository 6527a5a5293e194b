#include "coordinator/core/queue/dependencies.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/core/records/list_text.h"

namespace muster::coordinator {
namespace {

std::string requirement_text(DependencyKind kind) {
  switch (kind) {
    case DependencyKind::kAfterOk:
      return "has succeeded";
    case DependencyKind::kAfterAny:
      return "has ended";
    case DependencyKind::kAfterNotOk:
      return "has failed or was cancelled";
  }
  return "";
}

}  // namespace

bool is_met(DependencyKind kind, JobState end) {
  switch (kind) {
    case DependencyKind::kAfterOk:
      return end == JobState::kSucceeded;
    case DependencyKind::kAfterAny:
      return is_terminal(end);
    case DependencyKind::kAfterNotOk:
      return end == JobState::kFailed || end == JobState::kCancelled;
  }
  return false;
}

absl::StatusOr<std::vector<JobDependency>> unmet_dependencies(const JobSpec& spec,
                                                              const JobTable& jobs) {
  std::vector<JobDependency> unmet;
  for (const JobDependency& dependency : spec.dependencies) {
    const Job* job = jobs.find(dependency.job);
    if (job == nullptr) {
      return absl::NotFoundError(absl::StrCat(
          "spec.dependencies has job ", dependency.job.value(),
          ", which does not exist: it must be a job of this coordinator (`muster list --all`); the "
          "records of jobs that ended long ago are deleted"));
    }
    if (!is_terminal(job->state)) {
      unmet.push_back(dependency);
    } else if (!is_met(dependency.kind, job->state)) {
      return absl::FailedPreconditionError(
          absl::StrCat("spec.dependencies has ", av(dependency_kind_name(dependency.kind)), " job ",
                       dependency.job.value(), ", which is ", av(job_state_name(job->state)),
                       ": the new job could never start"));
    }
  }
  return unmet;
}

std::string dependencies_text(const std::vector<JobDependency>& waits_for) {
  std::vector<std::string> jobs;
  for (const JobDependency& one : waits_for)
    jobs.push_back(absl::StrCat("job ", one.job.value(), " ", requirement_text(one.kind)));
  return absl::StrCat("waits until ", list_text(jobs));
}

std::string lost_dependency_text(DependencyKind kind, const Job& ended) {
  return absl::StrCat("cannot start: it waited until job ", ended.id.value(), " ",
                      requirement_text(kind), ", which is ", av(job_state_name(ended.state)));
}

void Dependents::add(const Job& job) {
  for (const JobDependency& one : job.waits_for) waiting_[one.job].insert(job.id);
}

void Dependents::remove(const Job& job) {
  for (const JobDependency& one : job.waits_for) {
    const auto found = waiting_.find(one.job);
    if (found == waiting_.end()) continue;
    found->second.erase(job.id);
    if (found->second.empty()) waiting_.erase(found);
  }
}

std::set<JobId> Dependents::take(JobId ended) {
  auto node = waiting_.extract(ended);
  return node.empty() ? std::set<JobId>() : std::move(node.mapped());
}

}  // namespace muster::coordinator
