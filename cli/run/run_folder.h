// The folder of one `muster run` for its coordinator's state and its ranks' files:
// <output>/muster/<number>. Each call gets a new number, so that nothing of an earlier call is
// resumed, however it ended.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Earlier calls whose logs are retained; older ones are removed.
constexpr int kRunsKeptMax = 20;

class RunFolder {
 public:
  // AlreadyExists while another `muster run` uses the same output folder; other errors state why
  // the folder cannot be written (read-only, full, …).
  static absl::StatusOr<std::unique_ptr<RunFolder>> create(const std::string& output_directory);
  // Lets the next call use the output folder.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // For a rejected job: removes what this call has created, and empty parent folders. The next call
  // may use the output folder afterwards.
  void discard();

 private:
  RunFolder(std::string path, std::vector<std::filesystem::path> made, int lock_fd)
      : path_(std::move(path)), made_(std::move(made)), lock_fd_(lock_fd) {}

  const std::string path_;
  // parents of path_ that this call created, deepest first
  const std::vector<std::filesystem::path> made_;
  const int lock_fd_;
};

}  // namespace muster::cli
