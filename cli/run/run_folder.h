// Where one `muster run` keeps its coordinator's state and its ranks' files: <output>/muster/<number>. A new
// number for each call, so that nothing of an earlier call, however it ended, comes back to life.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Earlier calls whose logs stay; older ones are removed.
constexpr int kRunsKeptMax = 20;

class RunFolder {
 public:
  // AlreadyExists while another `muster run` works in the same output folder; otherwise why the folder cannot
  // be written (read-only, full, …).
  static absl::StatusOr<std::unique_ptr<RunFolder>> create(const std::string& output_directory);
  // Lets the next call in.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // For a job that was refused: removes what this call has made, folders above it while they are empty. The next call may
  // come in from then on.
  void discard();

 private:
  RunFolder(std::string path, std::vector<std::filesystem::path> made, int lock_fd)
      : path_(std::move(path)), made_(std::move(made)), lock_fd_(lock_fd) {}

  const std::string path_;
  const std::vector<std::filesystem::path> made_;  // above path_, deepest first
  const int lock_fd_;
};

}  // namespace muster::cli
