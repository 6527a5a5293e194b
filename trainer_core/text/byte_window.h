// A window on the next bytes of a ByteSource, contiguous and as long as requested.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

#include "trainer_core/text/byte_source.h"

namespace muster::trainer {

// Not thread-safe. Holds the bytes that were peeked and not used, and up to a buffer's worth
// beyond.
class ByteWindow {
 public:
  // `offset` is that of the source's next byte.
  ByteWindow(std::unique_ptr<ByteSource> source, uint64_t offset);

  // Returns at least `bytes` of the next bytes, or all that remain. Valid until the next call.
  absl::StatusOr<std::string_view> peek(size_t bytes);
  // Skips bytes that were peeked.
  void use(size_t bytes);
  // Skips bytes that may not have been peeked. DataLoss if there are fewer.
  absl::Status skip(uint64_t bytes);

  uint64_t offset() const { return offset_; }
  // The position in the file on the disk, including bytes that are buffered here: for progress
  // only.
  uint64_t file_position() const { return source_->file_position(); }

 private:
  std::unique_ptr<ByteSource> source_;
  uint64_t offset_;
  std::string buffer_;
  size_t begin_ = 0;  // of the unused bytes
  size_t end_ = 0;    // of the bytes read
};

}  // namespace muster::trainer
