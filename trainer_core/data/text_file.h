// A text file mapped read-only, and the checks that tell text from anything else.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Immutable: any thread. The view lives as long as the object.
class TextFile {
 public:
  // NotFound, or InvalidArgument for a folder or an empty file; the message names the path.
  static absl::StatusOr<std::unique_ptr<TextFile>> open(const std::string& path);
  ~TextFile();
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;

  std::string_view text() const { return {data_, bytes_}; }

 private:
  TextFile(const char* data, size_t bytes) : data_(data), bytes_(bytes) {}

  const char* data_;  // owned mapping
  size_t bytes_;
};

// InvalidArgument for a NUL byte (with its offset), more than one byte in a hundred that is no
// UTF-8, or nothing but blanks. Stray bad bytes pass: real corpora have them, and the tokenizer
// maps them to U+FFFD.
absl::Status check_is_text(std::string_view text, const std::string& path);

}  // namespace muster::trainer
