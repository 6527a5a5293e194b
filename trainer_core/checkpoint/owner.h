// The ownership of a checkpoint directory. The file <checkpoint_directory>/OWNER has the owner:
// {"job": 7, "attempt": 2, "incarnation": 9…}.
//
// If the network to a worker fails, its ranks may continue to save while a new attempt runs on
// other nodes. So rank 0 of every attempt replaces OWNER when it opens the directory, and verifies
// before every change that OWNER is still its own file. It holds a lock on the file until it ends.
// Normally a lower attempt of a job cannot become the owner after a higher one. But a coordinator
// that has lost its state numbers jobs and attempts from 1 again, so this holds only while the
// process of the higher attempt runs.
//
// The check and the rename that follows it are two steps. A rank of an old attempt that is
// suspended exactly between them publishes its checkpoint when it resumes. This checkpoint is
// nevertheless complete, and it belongs to the same job and to the step in its name.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr char kOwnerFile[] = "OWNER";
// Prefix of files and folders that are being written. If a process ends during a write, they
// remain, and CheckpointStore::remove_leftovers() removes them.
constexpr char kTemporaryPrefix[] = ".tmp-";
// Prefix of a new OWNER file before it is renamed to OWNER.
constexpr char kTemporaryOwnerPrefix[] = ".tmp-owner-";

// Returns whether the process that has written, or is writing, the OWNER file at `path` is running.
// Returns false if this cannot be determined.
bool owner_is_alive(const std::string& path);

// The owner of a directory. All fields are 0 for a trainer that no worker has started.
struct CheckpointOwner {
  uint64_t job = 0;
  uint32_t attempt = 0;
  uint64_t incarnation = 0;
};

// Returns the content of OWNER for `owner`.
std::string text_of(const CheckpointOwner& owner);
// Parses the content of OWNER; nullopt if it is something else.
std::optional<CheckpointOwner> parse_owner(std::string_view text);
// Returns Aborted with one sentence about the owner that has taken the directory from `mine`.
// `present`: nullopt if that owner is unknown.
absl::Status not_the_owner(const std::string& directory,
                           const std::optional<CheckpointOwner>& present,
                           const CheckpointOwner& mine);

// Returns the content of OWNER; empty if the directory has no owner. Two ranks with equal texts
// access the same directory.
absl::StatusOr<std::string> owner_text(const std::string& directory);

// The ownership of a directory by this process. Called by one thread at a time.
class DirectoryFence {
 public:
  // Makes `owner` the owner of the directory, which must exist. If owner.incarnation is 0, the
  // current time is used instead. Returns Aborted if a running process of a higher attempt of the
  // same job is the owner.
  static absl::StatusOr<std::unique_ptr<DirectoryFence>> take(const std::string& directory,
                                                              const CheckpointOwner& owner);
  ~DirectoryFence();
  DirectoryFence(const DirectoryFence&) = delete;
  DirectoryFence& operator=(const DirectoryFence&) = delete;

  // Returns Aborted, with a sentence, if another process has become the owner. Becomes the owner
  // again if the other process belongs to a lower attempt of the same job, or if OWNER was deleted.
  absl::Status check();

  const CheckpointOwner& owner() const { return owner_; }

 private:
  DirectoryFence(std::string directory, const CheckpointOwner& owner)
      : directory_(std::move(directory)), owner_(owner) {}

  absl::Status write();
  absl::StatusOr<int> write_temporary(const std::string& path) const;

  std::string directory_;
  CheckpointOwner owner_;
  int fd_ = -1;  // OWNER as this process wrote it, locked
};

}  // namespace muster::trainer
