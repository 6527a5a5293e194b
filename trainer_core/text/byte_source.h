// The bytes of a file as a stream, decompressed where it is compressed. What it is compressed with is told by its first bytes,
// not by its name: gzip (several members one after the other, too) and zstd (several frames, too).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// One thread. Memory does not depend on the file: buffers of a fixed size, and zstd's window up to the library's own bound.
class ByteSource {
 public:
  // NotFound; InvalidArgument for what is no regular file. Messages name the file.
  static absl::StatusOr<std::unique_ptr<ByteSource>> open(const std::string& path);
  virtual ~ByteSource() = default;

  // Stores up to out.size() of the next bytes; 0 at the end. DataLoss names the file and the offset, in the file as it lies on
  // the disk, where its compression is damaged or it ends too early, and at its end the file that was written to since it was opened.
  virtual absl::StatusOr<size_t> read(std::span<char> out) = 0;
  // Passes over bytes. DataLoss when there are fewer.
  virtual absl::Status skip(uint64_t bytes);
  // How many bytes of the file on the disk are used up.
  virtual uint64_t file_position() const = 0;
};

}  // namespace muster::trainer
