// The coordinator's durable state. Used by one thread at a time: during the start by the main
// thread, and then by the core loop's thread.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/ids.h"
#include "coordinator/core/core.h"
#include "muster/v1/muster.pb.h"

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
  std::vector<StoredExit> exits{};  // exits of jobs that are not in `jobs`

  bool empty() const {
    return jobs.empty() && request_ids.empty() && forgotten.empty() && last_job_id == JobId(0) &&
           incidents.empty() && forgotten_incidents.empty() && nodes.empty() &&
           forgotten_nodes.empty() && exits.empty();
  }
};

class Storage {
 public:
  virtual ~Storage() = default;

  // Returns the stored state. Returns DataLoss with the number of a job whose record cannot be
  // read. Skips unreadable incidents and nodes with a warning.
  virtual absl::StatusOr<DurableState> load() = 0;

  // Stores the batch. The batch is durable if the call returns OK; after an error nothing of it is
  // stored. The error describes the problem of the disk or the file. After ResourceExhausted (the
  // disk is full) the same batch can be stored once there is space.
  virtual absl::Status commit(const StorageBatch& batch) = 0;

  // Increments, stores and returns the epoch, which counts the coordinator's runs over this state.
  virtual absl::StatusOr<Epoch> begin_epoch() = 0;

  // Returns the stored incident; NotFound if there is no such incident.
  virtual absl::StatusOr<v1::Incident> incident(IncidentId id) = 0;
  // Returns the newest incidents of one job, or of all jobs if `job` is 0, in their shortened form.
  // Skips unreadable incidents.
  virtual absl::StatusOr<std::vector<v1::Incident>> incidents(JobId job, size_t count_max) = 0;
};

}  // namespace muster::coordinator
