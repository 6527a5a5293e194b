// A new folder that appears with all its files, or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// A folder under construction. It has a temporary name next to its final path, and is locked while
// it is filled. A temporary folder without a lock was left by a process that has ended; the next
// process that creates the same final path removes it. Not thread-safe.
class NewFolder {
 public:
  // Creates the temporary folder. Returns AlreadyExists if `path` exists and is not an empty
  // folder, ResourceExhausted if the disk has no room for `bytes`, and otherwise the reason why the
  // folder cannot be created.
  static absl::StatusOr<std::unique_ptr<NewFolder>> create(const std::string& path, uint64_t bytes);
  // Removes the folder if it was not published.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Returns the path at which to write the file `name`.
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  const std::string& temporary() const { return temporary_; }
  // Syncs the list of the folder's files and renames the folder to its final path. Requires that
  // the files themselves are synced. Returns AlreadyExists if another process has created the final
  // path since.
  absl::Status publish();

 private:
  NewFolder(std::string path, std::string temporary, int lock)
      : path_(std::move(path)), temporary_(std::move(temporary)), lock_(lock) {}

  std::string path_;
  std::string temporary_;
  int lock_;  // owned file descriptor of the folder, which holds the lock
};

}  // namespace muster::trainer
