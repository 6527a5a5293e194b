// Files that only root can change.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace muster::worker {

// Checks that only root can change the file or folder `path`, or put another one in its place: it,
// the folders on the way to it, and those of the links on the way, belong to root, and no other
// user and no group may write to them, by their mode or an access control list. Folders on the way
// may have the sticky bit instead, as /tmp has. Returns FailedPrecondition, which names the path
// and what would be right.
absl::Status check_protected(const std::string& path);

}  // namespace muster::worker
