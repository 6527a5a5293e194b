// A file of JSON lines that a log agent watches. When the file is full, it is renamed to <path>.1
// and replaces the previous <path>.1, so that the folder's size stays bounded.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::worker {

class TraceFile {
 public:
  TraceFile(std::string path, uint64_t bytes_max, mode_t mode)
      : path_(std::move(path)), bytes_max_(bytes_max), mode_(mode) {}
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Appends `line` and a newline in one write. Returns an error that names the file and the reason.
  absl::Status append(std::string_view line);

 private:
  absl::Status open();
  void close_file();

  const std::string path_;
  const uint64_t bytes_max_;
  const mode_t mode_;
  int fd_ = -1;
};

}  // namespace muster::worker
