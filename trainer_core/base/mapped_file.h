// A file of somebody else's, mapped read-only: what is not looked at is not read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

#include "trainer_core/base/mapped_read.h"

namespace muster::trainer {

// Immutable: any thread. A file that shrinks while it is mapped ends the process where its bytes are read, but for read().
class MappedFile {
 public:
  // The error of the system, or InvalidArgument where `path` is no regular file; both name it. An empty file has no bytes.
  static absl::StatusOr<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const char> bytes() const { return bytes_; }
  // Runs `body`, which reads of the bytes and does what read_mapped() allows. DataLoss when the file was cut off meanwhile.
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
