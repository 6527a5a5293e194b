// Reads a zip archive of uncompressed entries, as torch.save writes it, in place. Integers are
// little-endian. The layout is (PKWARE's APPNOTE 6.3.10):
//
//   for each entry: local header "PK\3\4", 30 bytes, name, extra field | its bytes
//   central directory, for each entry: "PK\1\2", 46 bytes, name, extra field (zip64: 8-byte
//                                      sizes and offset), comment
//   [zip64 end "PK\6\6", 56 bytes | its locator "PK\6\7", 20 bytes]
//   end "PK\5\6", 22 bytes, comment
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <absl/status/statusor.h>

#include "trainer_core/base/mapped_file.h"

namespace muster::trainer {

// A mapped archive. Immutable and thread-safe.
class StoredZip {
 public:
  struct Entry {
    uint64_t offset = 0;  // bytes from the start of the file
    uint64_t bytes = 0;
  };

  // Opens an archive, and verifies that every entry lies within the file. Returns the system's
  // error if the file cannot be opened, InvalidArgument if it is not a zip archive or has
  // compressed or encrypted entries, and DataLoss if it is damaged. Errors contain the path and the
  // byte.
  static absl::StatusOr<std::unique_ptr<StoredZip>> open(const std::string& path);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  // Returns the bytes of an entry, which are valid as long as this object.
  std::span<const char> bytes(const Entry& entry) const {
    return file_->bytes().subspan(entry.offset, entry.bytes);
  }
  const MappedFile& file() const { return *file_; }

 private:
  explicit StoredZip(std::unique_ptr<MappedFile> file) : file_(std::move(file)) {}

  std::unique_ptr<MappedFile> file_;
  std::map<std::string, Entry> entries_;
};

}  // namespace muster::trainer
