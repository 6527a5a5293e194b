// A text file mapped read-only, and the checks that distinguish text from other files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

// A mapped file. Immutable and thread-safe. text() is valid as long as the object.
class TextFile {
 public:
  // Maps the file. Returns NotFound, or InvalidArgument for a folder, an empty file or a pointer of
  // Git LFS; the message contains the path.
  static absl::StatusOr<std::unique_ptr<TextFile>> open(const std::string& path);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  std::string_view text() const { return {data_, bytes_}; }

 private:
  TextFile(const char* data, size_t bytes) : data_(data), bytes_(bytes) {}

  const char* data_;  // the mapping, owned
  size_t bytes_;
};

// Distinguishes text from other files by their bytes. A few invalid bytes are accepted, because
// real corpora have them.
class TextCheck {
 public:
  // Adds a piece of the file that begins at `offset`.
  void add(std::string_view piece, uint64_t offset);
  // Returns InvalidArgument if the pieces have a NUL byte (with its offset), more than 1 % of bytes
  // that are not UTF-8, or only blanks.
  absl::Status status(const std::string& path) const;

 private:
  uint64_t bytes_ = 0;
  uint64_t invalid_bytes_ = 0;
  std::optional<uint64_t> first_invalid_;
  std::optional<uint64_t> first_nul_;
  bool is_blank_ = true;
};

}  // namespace muster::trainer
