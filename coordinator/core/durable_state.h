// The contents of a coordinator's storage when the coordinator starts: a value without behaviour.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/records/deep_check.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/node_record.h"
#include "coordinator/core/records/queue_policy.h"

namespace muster::coordinator {

// The durable state of a restarted coordinator.
struct DurableState {
  StoreId store;
  std::vector<Job> jobs;
  std::map<std::string, JobId> request_ids;
  // The highest job number assigned so far. The record of this job may be deleted already.
  JobId last_job_id{0};
  // The numbers of the stored incidents, ascending. The highest number is never deleted.
  std::vector<IncidentId> incidents;
  // The stored incidents that are not finished.
  std::vector<Incident> open_incidents;
  // The nodes that have a suspicion record.
  std::vector<NodeRecord> nodes{};
  // The newest results of deep checks, oldest first.
  std::map<WorkerName, std::vector<DeepCheckRecord>> deep_checks{};
  std::vector<UsageRecord> usages{};
  // The text of the queue policy that was last in force; empty: there was none.
  std::string queue_policy{};
  // The epoch of the last leader whose state this was when it left etcd; 0: it never did.
  Epoch left_at{};
};

}  // namespace muster::coordinator
