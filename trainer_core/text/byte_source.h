// Reads the bytes of a file as a stream, and decompresses gzip (also with several members) and zstd
// (also with several frames). The first bytes determine the compression, not the name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

#include "common/process/control_groups.h"

namespace muster::trainer {

// A stream of a file's decompressed bytes. Not thread-safe. Its memory does not depend on the
// file's size: it has buffers of a fixed size, and the window of a zstd frame, at most 2 GiB
// (--long=31).
class ByteSource {
 public:
  // Opens a file. Returns NotFound, or InvalidArgument if `path` is not a regular file, is a
  // pointer of Git LFS or a tar archive, or is compressed in another way; the messages contain the
  // path. `roots`: where the limits of memory are.
  static absl::StatusOr<std::unique_ptr<ByteSource>> open(const std::string& path,
                                                          const MachineRoots& roots = {});
  virtual ~ByteSource() = default;

  // Stores up to out.size() of the next bytes and returns their number; 0 at the end. Returns
  // DataLoss, with the path and the offset in the compressed file, if compressed data is damaged or
  // truncated, if other bytes follow it or, at the end, if the file was written to since it was
  // opened. Returns InvalidArgument for a zstd window beyond the limit or a dictionary, and
  // ResourceExhausted if there is no memory for the window.
  virtual absl::StatusOr<size_t> read(std::span<char> out) = 0;
  // Skips the next `bytes` bytes. Returns DataLoss if fewer remain.
  virtual absl::Status skip(uint64_t bytes);
  // Returns the number of bytes of the file on disk (compressed) that were consumed.
  virtual uint64_t file_position() const = 0;
};

}  // namespace muster::trainer
