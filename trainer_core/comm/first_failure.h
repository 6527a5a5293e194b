// The first failure of any group of a rank that uses NCCL. The other groups poll it while they wait
// for a device, and then fail with the same status. Internal to nccl_group.cc and
// nccl_communicator.cc. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>

#include <absl/status/status.h>

namespace muster::trainer {

class FirstFailure {
 public:
  // Returns whether there was a failure.
  bool exists() const { return exists_; }
  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  // Stores `failure` unless a failure is stored already. Returns the stored status.
  absl::Status store_first(const absl::Status& failure) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = failure;
    exists_ = true;
    return status_;
  }

 private:
  std::atomic<bool> exists_{false};
  mutable std::mutex mutex_;
  absl::Status status_;
};

}  // namespace muster::trainer
