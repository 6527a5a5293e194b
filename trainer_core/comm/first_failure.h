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
  bool is_there() const { return is_there_; }
  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  // Stores `failure` unless a failure is stored already. Returns the stored status.
  absl::Status keep(const absl::Status& failure) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = failure;
    is_there_ = true;
    return status_;
  }

 private:
  std::atomic<bool> is_there_{false};
  mutable std::mutex mutex_;
  absl::Status status_;
};

}  // namespace muster::trainer
