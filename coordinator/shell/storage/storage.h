// The coordinator's durable state. Used by one thread at a time: during the start by the main
// thread, and then by the core loop's thread.
#pragma once

#include <cstddef>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/job/ids.h"
#include "coordinator/core/core.h"
#include "coordinator/shell/storage/storage_batch.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

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
  // Returns at most `count_max` ended attempts of the job before the attempt `before`, newest
  // first. Skips unreadable records.
  virtual absl::StatusOr<std::vector<v1::JobAttempt>> attempts(JobId job, Attempt before,
                                                               size_t count_max) = 0;
};

}  // namespace muster::coordinator
