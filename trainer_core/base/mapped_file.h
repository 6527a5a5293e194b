// A file from outside, mapped read-only: only the pages that are accessed are read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "trainer_core/base/mapped_read.h"

namespace muster::trainer {

// Immutable and thread-safe. If the file shrinks while it is mapped, an access to the missing bytes
// ends the process, except inside read().
class MappedFile {
 public:
  // Maps the file. Returns the system's error, or InvalidArgument if `path` is not a regular file;
  // both messages contain the path. An empty file gives empty bytes().
  static absl::StatusOr<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const char> bytes() const { return bytes_; }
  // Runs `body`, which reads bytes() under the restrictions of read_mapped(). Returns DataLoss if
  // the file was truncated and `body` read a missing part.
  template <class Body>
  absl::Status read(Body&& body) const {
    return read_mapped(bytes_.data(), bytes_.size(), body) ? absl::OkStatus() : cut_off();
  }

 private:
  MappedFile(std::string path, std::span<const char> bytes)
      : path_(std::move(path)), bytes_(bytes) {}
  absl::Status cut_off() const;

  std::string path_;
  std::span<const char> bytes_;
};

}  // namespace muster::trainer
