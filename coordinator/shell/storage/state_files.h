// The database files of a state directory. A directory has at most one of them: the state of a
// coordinator without etcd, or a copy of the state in etcd, which is replaced at each election.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace muster::coordinator {

std::string own_state_file(const std::string& state_dir);
std::string mirror_file(const std::string& state_dir);
// Returns the one of these files that exists; own_state_file() if there is none.
std::string present_file(const std::string& state_dir);

// Returns FailedPrecondition if the directory has a file of the other kind of coordinator: a copy
// of etcd's state may be old, and a state without etcd would be ignored.
absl::Status check_state_files(const std::string& state_dir, bool has_etcd);
// Renames the state, which etcd has now, so that no coordinator begins with it again. Requires that
// no process uses it.
absl::Status retire_state_file(const std::string& state_dir);

}  // namespace muster::coordinator
