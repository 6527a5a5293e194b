// Locks that end with their process, however it ends. Any thread; nothing is kept.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

namespace muster {

// Locks a file or folder that exists: a descriptor that holds the lock until it is closed, or none while another one does, of this
// process or another. The error of the system, which names the path; a file system without locks is one.
absl::StatusOr<std::optional<int>> try_lock(const std::string& path);

}  // namespace muster
