// Ownership of a checkpoint directory: <checkpoint_directory>/OWNER, {"job": 7, "attempt": 2,
// "incarnation": 9…}.
//
// A worker that was cut off may leave ranks of an old attempt that continue to save beside the new
// attempt. Rank 0 of every attempt therefore replaces OWNER when it opens the directory, and checks
// before every change that its own file is still there. It holds a lock on the file while it lives.
// Coordinators with a fresh state count jobs and attempts from 1 again, so a higher attempt of the
// same job excludes a lower one only while it lives.
//
// The check and the following rename are two steps: a rank that is stopped exactly between them
// publishes when it resumes. That checkpoint is complete, and of the same job and step as its
// number states.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr char kOwnerFile[] = "OWNER";
// Prefix of files that a process which dies while writing leaves; remove_leftovers() removes them.
constexpr char kTemporaryPrefix[] = ".tmp-";
// Prefix of an OWNER that has not been renamed to its final name.
constexpr char kTemporaryOwnerPrefix[] = ".tmp-owner-";

// Returns whether the process that wrote the OWNER at `path`, or is writing it, is known to live.
bool owner_is_alive(const std::string& path);

// All zero for a trainer that was started by hand.
struct CheckpointOwner {
  uint64_t job = 0;
  uint32_t attempt = 0;
  uint64_t incarnation = 0;
};

// The content of OWNER, and its inverse; nullopt for another text.
std::string text_of(const CheckpointOwner& owner);
std::optional<CheckpointOwner> parse_owner(std::string_view text);
// Aborted: one sentence about the owner that has taken the directory. nullopt: it is not known.
absl::Status not_the_owner(const std::string& directory,
                           const std::optional<CheckpointOwner>& present,
                           const CheckpointOwner& mine);

// Returns the content of OWNER: the same text on two ranks means the same directory. Empty if the
// directory has no owner.
absl::StatusOr<std::string> owner_text(const std::string& directory);

// One thread at a time.
class DirectoryFence {
 public:
  // Makes `owner` the owner of the directory, which must exist. An owner without an incarnation
  // gets the current time as its incarnation. Aborted if a living higher attempt of the same job
  // owns it.
  static absl::StatusOr<std::unique_ptr<DirectoryFence>> take(const std::string& directory,
                                                              const CheckpointOwner& owner);
  ~DirectoryFence();
  DirectoryFence(const DirectoryFence&) = delete;
  DirectoryFence& operator=(const DirectoryFence&) = delete;

  // Returns Aborted, with one sentence, if another process took the directory. Takes it back from a
  // lower attempt of the same job, and if OWNER was deleted.
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
