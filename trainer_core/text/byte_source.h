// The bytes of a file as a stream, decompressed if needed. The compression is detected by the first
// bytes, not by the name: gzip (also several members) and zstd (also several frames).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Not thread-safe. Memory does not depend on the file's size: buffers of a fixed size, and the
// window of a zstd frame, at most 2 GiB (--long=31).
class ByteSource {
 public:
  // Errors: NotFound; InvalidArgument if it is not a regular file, a pointer of Git LFS, a tar
  // archive, or compressed in another way. Messages name the file.
  static absl::StatusOr<std::unique_ptr<ByteSource>> open(const std::string& path);
  virtual ~ByteSource() = default;

  // Stores up to out.size() of the next bytes and returns their number; 0 at the end. DataLoss,
  // with the file and the offset on the disk: damaged or truncated compressed data, other bytes
  // behind it, or, at the end, a file that was written to since it was opened. InvalidArgument: a
  // zstd window beyond the limit, or a dictionary; ResourceExhausted: no memory for the window.
  virtual absl::StatusOr<size_t> read(std::span<char> out) = 0;
  // Skips bytes. DataLoss if there are fewer.
  virtual absl::Status skip(uint64_t bytes);
  // The number of bytes of the file on the disk that are consumed.
  virtual uint64_t file_position() const = 0;
};

}  // namespace muster::trainer
