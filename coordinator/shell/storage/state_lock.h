// Prevents two coordinators from sharing one state directory.
#pragma once

#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::coordinator {

// A lock that is held from take() to its destruction. The kernel releases it if the process dies.
class StateLock {
 public:
  // Locks DIR/coordinator.lock. Returns AlreadyExists, with the directory and the owner's process,
  // if another coordinator holds the lock.
  static absl::StatusOr<std::unique_ptr<StateLock>> take(const std::string& directory);
  ~StateLock();
  StateLock(const StateLock&) = delete;
  StateLock& operator=(const StateLock&) = delete;

 private:
  explicit StateLock(int fd) : fd_(fd) {}

  int fd_;
};

}  // namespace muster::coordinator
