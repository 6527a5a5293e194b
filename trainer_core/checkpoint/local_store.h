// A node's local checkpoints: a folder in memory-backed storage (tmpfs), private to the user and to one job.
//
//   <folder>/120-9a3f5c0e71b2d684/            a save: its step and its time (local_part.h)
//              model-00003-00000.safetensors  a writer's files, as a checkpoint has them (checkpoint.h): this node's writers' and copies
//              optimizer-00003-00000.safetensors                                              of those of another node
//              part-00003.json                written when the writer's files are whole; what has none does not count
//
// Nothing is synced: the memory is gone when the machine is, and outlives every process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/checkpoint.h"
#include "trainer_core/checkpoint/local_part.h"

namespace muster::trainer {

// Several processes of a node use one folder: each writes files of other names, and one of them removes. Errors name the path.
class LocalStore {
 public:
  explicit LocalStore(std::string folder) : folder_(std::move(folder)) {}

  const std::string& folder() const { return folder_; }
  std::string folder_of(const std::string& save) const { return folder_ + "/" + save; }

  // Makes the folder. PermissionDenied where another user's folder, a link or a file is in its place.
  absl::Status open() const;
  // By which two processes know whether they see the same folder.
  absl::StatusOr<std::string> identity() const;

  // Makes a save's folder, in a folder that open() has made: not anew where somebody has removed that one meanwhile.
  absl::Status begin(const std::string& save) const;
  // Writes a writer's files and part; its text. ResourceExhausted where there is no room. Requires begin().
  absl::StatusOr<std::string> write(LocalPart part, const CheckpointLayout& layout,
                                    const CheckpointBlocks& blocks, int64_t file_bytes) const;
  // The same of a copy whose files have been put into the folder.
  absl::Status keep(const LocalPart& part, const std::string& text) const;

  // The texts of all parts that are there, whatever they are worth.
  std::vector<std::string> parts() const;
  // NotFound: it is not there. DataLoss says what is wrong with it.
  absl::Status verify(const std::string& save, const StoredFile& file) const;

  void remove(const std::string& save) const;
  void remove_others(const std::string& save) const;
  // With everything in it.
  void remove_all() const;

 private:
  std::string folder_;
};

// Puts a file there that arrives in blocks: it has its name when all of it has the digest that it should.
class ArrivingFile {
 public:
  static absl::StatusOr<std::unique_ptr<ArrivingFile>> create(const std::string& folder,
                                                              const StoredFile& file);
  ~ArrivingFile();
  ArrivingFile(const ArrivingFile&) = delete;
  ArrivingFile& operator=(const ArrivingFile&) = delete;

  absl::Status append(std::span<const char> bytes) { return writer_->append(bytes); }
  // DataLoss where another file has arrived. Once, and last.
  absl::Status finish();

 private:
  ArrivingFile(std::string path, std::string temporary, FileDigest digest)
      : path_(std::move(path)), temporary_(std::move(temporary)), digest_(std::move(digest)) {}

  std::string path_, temporary_;
  FileDigest digest_;
  std::unique_ptr<BlockWriter> writer_;
};

}  // namespace muster::trainer
