// What failed first of a rank's groups that use NCCL: the others end with it, wherever they wait for a device. Internal to nccl_group.cc and
// what it is made of. Any thread.
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
  // The first status that this is called with.
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
