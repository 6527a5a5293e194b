// A node's local checkpoints: a folder in memory-backed storage (tmpfs), private to the user and to
// one job.
//
//   <folder>/120-9a3f5c0e71b2d684/            a save: its step and its time (local_part.h)
//              model-00003-00000.safetensors  a writer's files, as in a checkpoint (checkpoint.h):
//              optimizer-00003-00000.safetensors  of this node's writers, and another node's copies
//              part-00003.json                written when the writer's files are complete; files
//                                             without it do not count
//
// Nothing is synced: the memory is lost with the machine, but outlives every process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/local_part.h"

namespace muster::trainer {

// Several processes of a node use one folder: each writes files of distinct names, and one of them
// removes. Errors name the path.
class LocalStore {
 public:
  explicit LocalStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string folder_of(const std::string& save) const { return folder_ + "/" + save; }

  // Makes the folder. Returns PermissionDenied if another user's folder, a link or a file has its
  // name.
  absl::Status open() const;
  // Returns an identity that is equal for processes that see the same folder.
  absl::StatusOr<std::string> identity() const;

  // Makes a save's folder in the folder that open() has made. Does not recreate that folder if it
  // has been removed.
  absl::Status begin(const std::string& save) const;
  // Writes a writer's files and part; returns the part's text. ResourceExhausted if there is no
  // room. Requires begin().
  absl::StatusOr<std::string> write(LocalPart part, const CheckpointLayout& layout,
                                    const CheckpointBlocks& blocks, int64_t file_bytes) const;
  // Stores the part of a copy whose files are already in the folder.
  absl::Status keep(const LocalPart& part, const std::string& text) const;

  // Returns the texts of all existing parts, unchecked.
  std::vector<std::string> parts() const;
  // Returns NotFound if the file does not exist; DataLoss describes a defect.
  absl::Status verify(const std::string& save, const StoredFile& file) const;

  void remove(const std::string& save) const;
  void remove_others(const std::string& save) const;
  // Removes the folder and its contents.
  void remove_all() const;

 private:
  std::string folder_;
};

// Stores a file that arrives in blocks. It gets its name when its digest matches the expected one.
class ArrivingFile {
 public:
  static absl::StatusOr<std::unique_ptr<ArrivingFile>> create(const std::string& folder,
                                                              const StoredFile& file);
  ~ArrivingFile();
  ArrivingFile(const ArrivingFile&) = delete;
  ArrivingFile& operator=(const ArrivingFile&) = delete;

  absl::Status append(std::span<const char> bytes) { return writer_->append(bytes); }
  // Returns DataLoss if another file has arrived. Called once, last.
  absl::Status finish();

 private:
  ArrivingFile(std::string path, std::string temporary, FileDigest digest)
      : path_(std::move(path)), temporary_(std::move(temporary)), digest_(std::move(digest)) {}

  std::string path_, temporary_;
  FileDigest digest_;
  std::unique_ptr<BlockWriter> writer_;
};

}  // namespace muster::trainer
