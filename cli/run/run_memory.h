// Where one `muster run` has its ranks keep local checkpoints: a folder of its own in memory-backed storage, gone with the call.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace muster::cli {

class RunMemory {
 public:
  // Makes <root>/muster-run-<uid>-<pid>-<six characters>, and removes those of calls that were killed: nobody holds their lock any more (a
  // process id says little: it comes again). Null where there is no such place. Any number of calls, and threads, at once.
  static std::unique_ptr<RunMemory> create(const std::string& root = "/dev/shm");
  // Removes the folder. Nobody writes to it any more.
  ~RunMemory();
  RunMemory(const RunMemory&) = delete;
  RunMemory& operator=(const RunMemory&) = delete;

  const std::string& path() const { return path_; }

 private:
  RunMemory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  const std::string path_;
  const int lock_;  // flock on the folder, while this process lives
};

}  // namespace muster::cli
