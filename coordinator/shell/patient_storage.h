// Stores the core's changes, and waits while the disk is full: an operator can free space while the
// trainings continue.
#pragma once

#include <atomic>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include "common/time.h"
#include "coordinator/shell/space_reserve.h"
#include "coordinator/shell/storage.h"

namespace muster::coordinator {

class PatientStorage {
 public:
  // Requires that `storage` and `reserve` outlive this object. `reserve`: space for the last batch
  // of a loop that is stopped while the disk is full; null: none.
  PatientStorage(Storage& storage, SpaceReserve* reserve) : storage_(storage), reserve_(reserve) {}

  // Stores the batch. While the disk is full, calls stopped(time), which blocks for at most `time`
  // and returns whether the loop is stopped, and tries again. Returns ResourceExhausted if the loop
  // was stopped before there was space, and other errors at once.
  absl::Status commit(const StorageBatch& batch, absl::FunctionRef<bool(Duration)> stopped);

  // Returns whether commit() waits for space. Thread-safe.
  bool is_waiting() const { return is_waiting_; }
  // Returns the error of requests that arrive meanwhile.
  static absl::Status refusal();

 private:
  Storage& storage_;
  SpaceReserve* const reserve_;
  std::atomic<bool> is_waiting_{false};
};

}  // namespace muster::coordinator
