// The durable changes of one iteration of the core loop, as one transaction of the storage. Free of
// protobuf and SQLite, so that the simulation stores what the daemon stores.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/core.h"

namespace muster::coordinator {

// One exit of a job's attempt, at its index in Job::exits.
struct StoredExit {
  JobId job;
  Attempt attempt;
  size_t position = 0;
  RankExit exit;
};

// The changes of one iteration of the core loop, which are stored completely or not at all.
struct StorageBatch {
  std::map<JobId, Job> jobs;  // the newest record of each
  std::map<std::string, JobId> request_ids;
  std::vector<JobId> forgotten;
  JobId last_job_id{0};                        // the newest number assigned in this batch; 0: none
  std::map<IncidentId, Incident> incidents{};  // the newest record of each
  std::vector<IncidentId> forgotten_incidents{};
  std::map<WorkerName, NodeRecord> nodes{};  // the newest record of each
  std::vector<WorkerName> forgotten_nodes{};
  // The newest results of deep checks of each node; empty: they are to be deleted.
  std::map<WorkerName, std::vector<DeepCheckRecord>> deep_checks{};
  std::vector<StoredExit> exits{};        // exits of jobs that are not in `jobs`
  std::vector<AttemptRecord> attempts{};  // attempts that have ended
  std::map<Party, UsageRecord> usages{};  // the newest record of each
  std::optional<std::string> queue_policy{};

  bool empty() const {
    return jobs.empty() && request_ids.empty() && forgotten.empty() && last_job_id == JobId(0) &&
           incidents.empty() && forgotten_incidents.empty() && nodes.empty() &&
           forgotten_nodes.empty() && exits.empty() && attempts.empty() && deep_checks.empty() &&
           usages.empty() && !queue_policy;
  }
};

// Returns whether the batch replaces records that contained environment values.
bool ends_with_secrets(const StorageBatch& batch);

// Returns the records that the actions of one iteration store, in their newest form. Requires that
// `core` returned the actions and has processed no event since.
StorageBatch batch_of(const Core& core, const ActionList& actions);

}  // namespace muster::coordinator
