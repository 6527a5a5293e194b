// A folder that appears completely or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The folder is filled under a temporary name beside its final path, and is locked meanwhile. A
// folder with such a name and no lock belongs to a dead process; the next process for the same path
// removes it. Not thread-safe.
class NewFolder {
 public:
  // Errors: AlreadyExists if `path` exists and is not an empty folder; ResourceExhausted if the
  // disk has no room for `bytes`; otherwise the reason why the folder cannot be created.
  static absl::StatusOr<std::unique_ptr<NewFolder>> create(const std::string& path, uint64_t bytes);
  // Removes the folder if it was not published.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Returns the path at which to write the file `name`.
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  const std::string& temporary() const { return temporary_; }
  // Syncs the names of its files and renames the folder to its final path. AlreadyExists if
  // something was created there in the meantime.
  absl::Status publish();

 private:
  NewFolder(std::string path, std::string temporary, int lock)
      : path_(std::move(path)), temporary_(std::move(temporary)), lock_(lock) {}

  std::string path_;
  std::string temporary_;
  int lock_;  // owned descriptor of the folder
};

}  // namespace muster::trainer
