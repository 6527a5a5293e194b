// The contents of a coordinator's storage before its first step: a value without behaviour.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/records/incident.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/node_record.h"

namespace muster::coordinator {

// The durable state of a restarted coordinator.
struct DurableState {
  StoreId store;
  std::vector<Job> jobs;
  std::map<std::string, JobId> request_ids;
  JobId last_job_id{0};                  // the newest that was given; the job may be forgotten
  std::vector<IncidentId> incidents;     // whose records are stored, growing; the newest never goes
  std::vector<Incident> open_incidents;  // those of them that are not finished
  std::vector<NodeRecord> nodes{};       // of which something is known
};

}  // namespace muster::coordinator
