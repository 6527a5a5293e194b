// JSON lines in a folder that a log agent watches. A full file is renamed to <path>.1, replacing
// the previous one, so that the folder stays bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

namespace muster::worker {

class TraceFile {
 public:
  TraceFile(std::string path, uint64_t bytes_max) : path_(std::move(path)), bytes_max_(bytes_max) {}
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Appends `line` and a newline in one write. Errors name the file and the reason.
  absl::Status append(std::string_view line);

 private:
  absl::Status open();
  void close_file();

  const std::string path_;
  const uint64_t bytes_max_;
  int fd_ = -1;
};

}  // namespace muster::worker
