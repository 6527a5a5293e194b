// Where one `muster run` keeps its coordinator's state and its ranks' files: <output>/muster/<number>. A new
// number for each call, so that nothing of an earlier call, however it ended, comes back to life.
#pragma once

#include <memory>
#include <string>

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
  // For a job that was refused: removes this call's folder, and what is empty above it up to the output folder.
  void discard();

 private:
  RunFolder(std::string output_directory, std::string path, int lock_fd)
      : output_directory_(std::move(output_directory)), path_(std::move(path)), lock_fd_(lock_fd) {}

  const std::string output_directory_;
  const std::string path_;
  const int lock_fd_;
};

}  // namespace muster::cli
