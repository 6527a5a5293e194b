// A folder in memory-backed storage for the local checkpoints of one `muster run`; the destructor
// removes the folder.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace muster::cli {

class RunMemory {
 public:
  // Creates <root>/muster-run-<uid>-<pid>-<six characters>, and removes the folders of runs that
  // were killed. Such a folder's lock is free; its process id proves little, because ids are
  // reused. Returns null if `root` cannot be used. Safe to call in many processes and threads at
  // once.
  static std::unique_ptr<RunMemory> create(const std::string& root = "/dev/shm");
  // Removes the folder. Requires that no process writes to the folder any more.
  ~RunMemory();
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  const std::string& path() const { return path_; }

 private:
  RunMemory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;  // flock on the folder for the life of this process
};

}  // namespace muster::cli
