// The local checkpoints of a node: a folder in memory-backed storage (tmpfs) that belongs to one
// user and one job.
//
//   <folder>/120-9a3f5c0e71b2d684/   a save, named by its step and time (local_part.h), with the
//                                    files of this node's writers and copies of another node's:
//     model-00003-00000.safetensors, optimizer-00003-00000.safetensors
//                                    the files of writer 3, as in a checkpoint (checkpoint.h)
//     part-00003.json                the record of writer 3, written when the writer's files are
//                                    complete; files without a record are ignored
//
// Files are not synced: the memory survives the end of every process, but not a restart of the
// machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/local_part.h"

namespace muster::trainer {

// The folder of a node, which several processes use. Each process writes files with names of its
// own, and only one process removes files. Errors contain the path.
class LocalStore {
 public:
  explicit LocalStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  // Returns the folder of a save.
  std::string folder_of(const std::string& save) const { return folder_ + "/" + save; }

  // Makes the folder if needed. Returns PermissionDenied if its name belongs to a folder of another
  // user, a link or a file.
  absl::Status open() const;
  // Returns an identity of the folder. Two processes get equal identities if they access the same
  // folder.
  absl::StatusOr<std::string> identity() const;

  // Makes the folder of a save. Returns an error if the folder of open() was removed.
  absl::Status begin(const std::string& save) const;
  // Writes the files and the record of a writer, and returns the record's text. Returns
  // ResourceExhausted if there is no room. Requires an earlier begin() of the save.
  absl::StatusOr<std::string> write(LocalPart part, const CheckpointLayout& layout,
                                    const CheckpointBlocks& blocks, int64_t file_bytes) const;
  // Writes the record of another node's writer after copies of that writer's files were stored in
  // the folder. `text` is the text of `part`.
  absl::Status store_record(const LocalPart& part, const std::string& text) const;

  // Returns the texts of all records in the folder. Does not check them.
  std::vector<std::string> parts() const;
  // Compares a file with its digest. Returns NotFound if it does not exist, and DataLoss with the
  // defect.
  absl::Status verify(const std::string& save, const StoredFile& file) const;

  // Remove a save, or all saves except one.
  void remove(const std::string& save) const;
  void remove_others(const std::string& save) const;
  // Removes the folder and its contents.
  void remove_all() const;

 private:
  std::string folder_;
};

// Stores a file that another rank sends in blocks. The file gets its final name only if its digest
// is the expected one.
class ArrivingFile {
 public:
  // Creates a temporary file in `folder`. `file` has the final name and the expected digest.
  static absl::StatusOr<std::unique_ptr<ArrivingFile>> create(const std::string& folder,
                                                              const StoredFile& file);
  ~ArrivingFile();
  ArrivingFile(const ArrivingFile&) = delete;
  ArrivingFile& operator=(const ArrivingFile&) = delete;

  absl::Status append(std::span<const char> bytes) { return writer_->append(bytes); }
  // Compares the digest and renames the file. Returns DataLoss if the digest differs. Called once,
  // as the last call.
  absl::Status finish();

 private:
  ArrivingFile(std::string path, std::string temporary, FileDigest digest)
      : path_(std::move(path)), temporary_(std::move(temporary)), digest_(std::move(digest)) {}

  std::string path_, temporary_;
  FileDigest digest_;
  std::unique_ptr<BlockWriter> writer_;
};

}  // namespace muster::trainer
