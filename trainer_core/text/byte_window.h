// Gives contiguous views of the next bytes of a ByteSource, of any length that the caller requests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/text/byte_source.h"

namespace muster::trainer {

// A window on a stream. Not thread-safe. It stores the bytes that were peeked but not used yet, and
// the bytes that were read in addition.
class ByteWindow {
 public:
  // Requires that `offset` is the offset of the source's next byte in the decompressed file.
  ByteWindow(std::unique_ptr<ByteSource> source, uint64_t offset);

  // Returns the next bytes: at least `bytes`, or all remaining bytes. The view is valid until the
  // next call.
  absl::StatusOr<std::string_view> peek(size_t bytes);
  // Skips bytes that peek() has returned.
  void use(size_t bytes);
  // Skips bytes, peeked or not. Returns DataLoss if fewer remain.
  absl::Status skip(uint64_t bytes);

  uint64_t offset() const { return offset_; }
  // Returns the position in the file on disk, for progress reports only: it counts bytes as
  // consumed once they are in this window's buffer.
  uint64_t file_position() const { return source_->file_position(); }

 private:
  std::unique_ptr<ByteSource> source_;
  uint64_t offset_;
  std::string buffer_;
  size_t begin_ = 0;  // start of the bytes that are not used yet
  size_t end_ = 0;    // end of the bytes read
};

}  // namespace muster::trainer
