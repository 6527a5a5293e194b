// Stores the core's changes, and waits while the disk is full, so that an operator can free space
// while the jobs continue to train.
#pragma once

#include <atomic>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include "common/time/time.h"
#include "coordinator/shell/storage/space_reserve.h"
#include "coordinator/shell/storage/storage.h"

namespace muster::coordinator {

class PatientStorage {
 public:
  // Requires that `storage` and `reserve` outlive this object. `reserve`: the space for the last
  // batch, if the loop is stopped while the disk is full; null: none.
  PatientStorage(Storage& storage, SpaceReserve* reserve) : storage_(storage), reserve_(reserve) {}

  // Stores the batch. While the disk is full, calls stopped(time) and tries again. stopped() blocks
  // for at most `time` and returns whether the loop is stopped. Returns ResourceExhausted if the
  // loop was stopped and the batch fits neither on the disk nor in the reserve. Returns other
  // errors at once.
  absl::Status commit(const StorageBatch& batch, absl::FunctionRef<bool(Duration)> stopped);

  // Returns whether commit() waits for space. Thread-safe.
  bool is_waiting() const { return is_waiting_; }
  // Returns the error for requests that arrive while commit() waits.
  static absl::Status refusal();

 private:
  Storage& storage_;
  SpaceReserve* const reserve_;
  std::atomic<bool> is_waiting_{false};
};

}  // namespace muster::coordinator
