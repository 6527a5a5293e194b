// Where the coordinator's durable state lives. One thread at a time; the core loop's, after start.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/ids.h"
#include "coordinator/core/core.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// What one drain of the event queue changed: stored as a whole or not at all.
struct StorageBatch {
  std::map<JobId, Job> jobs;  // the newest record of each
  std::map<std::string, JobId> request_ids;
  std::vector<JobId> forgotten;
  JobId last_job_id{0};                        // the newest number given in this batch, if any
  std::map<IncidentId, Incident> incidents{};  // the newest record of each
  std::vector<IncidentId> forgotten_incidents{};
  std::map<WorkerName, NodeRecord> nodes{};  // the newest record of each
  std::vector<WorkerName> forgotten_nodes{};

  bool empty() const {
    return jobs.empty() && request_ids.empty() && forgotten.empty() && last_job_id == JobId(0) &&
           incidents.empty() && forgotten_incidents.empty() && nodes.empty() &&
           forgotten_nodes.empty();
  }
};

class Storage {
 public:
  virtual ~Storage() = default;

  // DataLoss names the job's record that cannot be read. An incident's or a node's is left out, with a warning.
  virtual absl::StatusOr<DurableState> load() = 0;

  // Durable when it returns OK. The error says what the disk or the file is at fault for; nothing was stored. ResourceExhausted: the disk is full,
  // and the same batch can be stored when it is not.
  virtual absl::Status commit(const StorageBatch& batch) = 0;

  // Counts the coordinator's lives over this state: one more than ever stored, and stored now.
  virtual absl::StatusOr<Epoch> begin_epoch() = 0;

  // What is stored of an incident; NotFound when there is none of that number.
  virtual absl::StatusOr<v1::Incident> incident(IncidentId id) = 0;
  // Newest first, as a list shows them, of one job or (0) of all of them. Those that cannot be read are left out.
  virtual absl::StatusOr<std::vector<v1::Incident>> incidents(JobId job, size_t count_max) = 0;
};

}  // namespace muster::coordinator
