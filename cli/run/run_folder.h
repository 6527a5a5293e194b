// The folder <output>/muster/<number> in which one `muster run` stores its coordinator's state and
// its ranks' files. Each `muster run` gets a new number, so that it never resumes the coordinator's
// state of an earlier one.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Number of retained folders of earlier runs; older folders are removed.
constexpr int kRunsKeptMax = 20;

// The folder of this process's run, and a lock on the output folder.
class RunFolder {
 public:
  // Creates the folder. Returns AlreadyExists while another `muster run` uses the same output
  // folder; other errors state why the folder cannot be written (read-only, full, …).
  static absl::StatusOr<std::unique_ptr<RunFolder>> create(const std::string& output_directory);
  // Releases the lock, so that another `muster run` may use the output folder.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Removes the folder, the parent folders that create() has created if they are empty, and the
  // lock. Called for a rejected job.
  void discard();

 private:
  RunFolder(std::string path, std::vector<std::filesystem::path> made, int lock_fd)
      : path_(std::move(path)), made_(std::move(made)), lock_fd_(lock_fd) {}

  const std::string path_;
  // parents of path_ that create() has created, deepest first
  const std::vector<std::filesystem::path> made_;
  const int lock_fd_;
};

}  // namespace muster::cli
