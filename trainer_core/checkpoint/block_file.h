// Files with a checksum for every kBlockBytes: whoever needs a part of one reads and verifies the blocks that hold it, and no
// more. XXH3 (64 bits; Collet, the xxHash library) finds damage by disks and memory, not by an adversary; it is faster than
// any disk, where CRC-32 was the slowest part of a save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// One write or read: large enough for a disk's full speed, and small enough for the cache, where the checksum finds it.
constexpr size_t kBlockBytes = size_t{4} << 20;

struct FileDigest {
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // of each kBlockBytes; the last one may be shorter

  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// Memory for kBlockBytes. What of it is not used costs nothing.
inline std::unique_ptr<char[]> make_block() {
  return std::make_unique_for_overwrite<char[]>(kBlockBytes);
}

uint64_t checksum(std::span<const char> bytes);
// 16 hexadecimal digits: JSON's numbers end at 2^53 for many readers.
std::string checksum_text(uint64_t checksum);

// Writes a file from front to back. The disk begins with each block as it is complete, so that finish() waits for the last
// ones only. One thread.
class BlockWriter {
 public:
  // AlreadyExists when there is such a file: nobody else writes to it. The error names it, and so do those of the other functions.
  static absl::StatusOr<std::unique_ptr<BlockWriter>> create(const std::string& path);
  // What was written before an error stays: the caller owns the folder.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // ResourceExhausted when the disk is full.
  absl::Status append(std::span<const char> bytes);
  // Syncs and closes. Once, and last.
  absl::StatusOr<FileDigest> finish();

 private:
  BlockWriter(std::string path, int fd);

  absl::Status write_block();
  absl::Status cannot_write(const absl::Status& why) const;

  std::string path_;
  int fd_;
  std::unique_ptr<char[]> block_ = make_block();  // filled up to used_
  size_t used_ = 0;
  FileDigest digest_;
};

// Reads blocks of a file whose digest is known. Any thread.
class BlockReader {
 public:
  // DataLoss, naming the file without its folder: not there, or not of the digest's size. The disk's errors are their own.
  static absl::StatusOr<std::unique_ptr<BlockReader>> open(const std::string& folder,
                                                           const std::string& name,
                                                           const FileDigest& digest);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // Block `index` in `buffer`, of make_block(), not verified. DataLoss where the file ends before it does.
  absl::StatusOr<std::span<const char>> read(size_t index, char* buffer) const;
  // DataLoss names the bytes whose checksum differs.
  absl::Status verify(size_t index, std::span<const char> block) const;

 private:
  BlockReader(std::string name, FileDigest digest, int fd)
      : name_(std::move(name)), digest_(std::move(digest)), fd_(fd) {}

  std::string name_;
  FileDigest digest_;
  int fd_;
};

}  // namespace muster::trainer
