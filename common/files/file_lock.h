// File locks that the kernel releases when the owning process ends for any reason. Thread-safe; no
// state.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

namespace muster {

// Locks an existing file or folder. Returns a descriptor that holds the lock until it is closed, or
// nullopt while another holder, in this process or another, has the lock. Otherwise returns the
// system's error with the path, also if the file system does not support locks. Does not block.
absl::StatusOr<std::optional<int>> try_lock(const std::string& path);

}  // namespace muster
