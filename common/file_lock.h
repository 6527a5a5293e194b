// File locks that the kernel releases when their process ends, however it ends. Thread-safe; no
// state.
#pragma once

#include <optional>
#include <string>

#include <absl/status/statusor.h>

namespace muster {

// Locks an existing file or folder. Returns a descriptor that holds the lock until it is closed, or
// nullopt while another holder, in this process or another, has the lock. Returns the system's
// error, with the path, otherwise; a file system without locks is such an error. Does not block.
absl::StatusOr<std::optional<int>> try_lock(const std::string& path);

}  // namespace muster
