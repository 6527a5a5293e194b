// Holds the first failure among a rank's groups that use NCCL: the other groups end with it
// wherever they wait for a device. Internal to nccl_group.cc and its parts. Thread-safe.
#pragma once

#include <atomic>
#include <mutex>

#include <absl/status/status.h>

namespace muster::trainer {

class FirstFailure {
 public:
  bool is_there() const { return is_there_; }
  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  // Stores `failure` unless there is one already; returns the stored status.
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
