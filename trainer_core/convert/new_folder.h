// A folder that is there whole or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// It grows under another name beside its place, and is locked while it does: what lies there under such a name and has no lock is
// a dead process's, and the next one for the same place removes it. One thread.
class NewFolder {
 public:
  // AlreadyExists when something is at `path`, but for an empty folder; ResourceExhausted when the disk has no room for
  // `bytes`; else why nothing can be made there.
  static absl::StatusOr<std::unique_ptr<NewFolder>> create(const std::string& path, uint64_t bytes);
  // Removes everything that was not published.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Where to write.
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  const std::string& temporary() const { return temporary_; }
  // Syncs the names of its files and puts it in its place. AlreadyExists when something came to be there meanwhile.
  absl::Status publish();

 private:
  NewFolder(std::string path, std::string temporary, int lock)
      : path_(std::move(path)), temporary_(std::move(temporary)), lock_(lock) {}

  std::string path_;
  std::string temporary_;
  int lock_;  // owned descriptor of it
};

}  // namespace muster::trainer
