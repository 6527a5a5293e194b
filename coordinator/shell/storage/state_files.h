// The database files of a state directory. A directory has at most one of them: the state of a
// coordinator without etcd, or a copy of the state in etcd, which is replaced at each election.
#pragma once

#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "common/job/ids.h"

namespace muster::coordinator {

std::string own_state_file(const std::string& state_dir);
std::string mirror_file(const std::string& state_dir);
// Returns the one of these files that exists; own_state_file() if there is none.
std::string present_file(const std::string& state_dir);
// Returns a file with a state that is or was in etcd: the copy, or the state that a StateMove has
// moved. Empty: there is none.
std::string earlier_state_in_etcd(const std::string& state_dir);

// Returns FailedPrecondition if the directory has a file of the other kind of coordinator: a copy
// of etcd's state may be old, and a state without etcd would be ignored. A directory that does not
// exist has no files.
absl::Status check_state_files(const std::string& state_dir, bool has_etcd);

// Moves the state of a directory to etcd. The file gets the name muster.db.in-etcd, with which no
// coordinator begins, before etcd receives its content: if this process ends in between, both kinds
// of coordinators refuse the directory, and the next move continues.
class StateMove {
 public:
  // Renames the state; or finds the one that an earlier move has renamed. Returns NotFound if there
  // is none, and FailedPrecondition if there are both. Requires that no process uses the file.
  static absl::StatusOr<StateMove> begin(const std::string& state_dir);

  // The file with the state.
  const std::string& file() const { return file_; }
  // Returns whether an earlier move has renamed the file, so that etcd may have the state.
  bool continues() const { return continues_; }
  // Gives the file its name back. Call it if etcd has no part of the state.
  absl::Status revert() const;

 private:
  StateMove(std::string from, std::string file, bool continues);

  std::string from_;
  std::string file_;
  bool continues_ = false;
};

// Makes the copy of etcd's state the state of a coordinator without etcd, with the part that is in
// its write-ahead log, and returns the epoch of its leader. Returns NotFound if there is no copy,
// FailedPrecondition if there is a state without etcd already, DataLoss if the copy is damaged.
// Requires that no process uses the files.
absl::StatusOr<Epoch> leave_etcd(const std::string& state_dir);

}  // namespace muster::coordinator
