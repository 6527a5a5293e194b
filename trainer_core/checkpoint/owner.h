// Who may write to a checkpoint directory: <checkpoint_directory>/OWNER, {"job": 7, "attempt": 2, "incarnation": 9…}.
//
// A worker that was cut off may leave ranks of an old attempt behind that save on beside the new attempt. Rank 0 of
// every attempt therefore puts its own OWNER in place when it opens the directory and asks before every change whether
// that very file still lies there. It holds a lock on the file while it lives: coordinators with a fresh state count
// jobs and attempts from 1 again, so a higher attempt of the same job refuses a lower one only while it lives.
//
// The check and the rename after it are two steps: a rank that is stopped exactly between them publishes when it goes on.
// What it publishes then is whole, and of the same job and step as its number says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

constexpr char kOwnerFile[] = "OWNER";
// What a process that died while it wrote may leave behind; remove_leftovers() removes it.
constexpr char kTemporaryPrefix[] = ".tmp-";
// An OWNER before it is in its place.
constexpr char kTemporaryOwnerPrefix[] = ".tmp-owner-";

// Whether the process that wrote the OWNER at `path`, or writes it there, is known to live.
bool owner_is_alive(const std::string& path);

// Zeros: a trainer that was started by hand.
struct CheckpointOwner {
  uint64_t job = 0;
  uint32_t attempt = 0;
  uint64_t incarnation = 0;
};

// What OWNER says: the same text on two ranks is the same directory. Empty when nobody owns it.
absl::StatusOr<std::string> owner_text(const std::string& directory);

// One thread at a time.
class DirectoryFence {
 public:
  // Makes `owner` the owner of the directory, which exists; one without an incarnation gets the time as its. Aborted when a living higher attempt of the same job owns
  // it.
  static absl::StatusOr<std::unique_ptr<DirectoryFence>> take(const std::string& directory,
                                                              const CheckpointOwner& owner);
  ~DirectoryFence();
  DirectoryFence(const DirectoryFence&) = delete;
  DirectoryFence& operator=(const DirectoryFence&) = delete;

  // Aborted, in one sentence, when somebody else took the directory. Takes it back from a lower attempt of the same
  // job, and when OWNER was deleted.
  absl::Status check();

  const CheckpointOwner& owner() const { return owner_; }

 private:
  DirectoryFence(std::string directory, const CheckpointOwner& owner)
      : directory_(std::move(directory)), owner_(owner) {}

  absl::Status write();
  absl::StatusOr<int> write_beside(const std::string& path) const;

  std::string directory_;
  CheckpointOwner owner_;
  int fd_ = -1;  // OWNER as this process wrote it, locked
};

}  // namespace muster::trainer
