// Files with a checksum per kBlockBytes: a reader of a part reads and verifies only the blocks that
// hold it. XXH3 (64 bits; Collet, the xxHash library) detects damage by disks and memory, not by an
// adversary. It is faster than any disk, whereas CRC-32 was the slowest part of a save.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/save_meter.h"

namespace muster::trainer {

// Bytes per write or read: large enough for a disk's full speed, small enough that the checksum
// finds the block in the cache.
constexpr size_t kBlockBytes = size_t{4} << 20;

struct FileDigest {
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // of each kBlockBytes; the last one may be shorter

  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// Allocates kBlockBytes. Unused pages cost nothing.
inline std::unique_ptr<char[]> make_block() {
  return std::make_unique_for_overwrite<char[]>(kBlockBytes);
}

uint64_t checksum(std::span<const char> bytes);
// Formats 16 hexadecimal digits: many JSON readers represent numbers only up to 2^53 exactly.
std::string checksum_text(uint64_t checksum);

// Bytes that may wait for the disk behind the writer. More would only hide how slow the disk is:
// the kernel accepts gigabytes, and the sync at the end would take minutes without any progress.
constexpr size_t kWritebackBytesMax = 32 * kBlockBytes;

// Writes a file sequentially. Writeback of each block starts when it is complete, and at most
// kWritebackBytesMax wait for the disk, so finish() waits only for the last blocks. One thread.
class BlockWriter {
 public:
  // Returns AlreadyExists if the file exists: it has no other writer. Errors of all functions name
  // the file.
  // `meter`, which outlives the writer, counts the blocks.
  static absl::StatusOr<std::unique_ptr<BlockWriter>> create(const std::string& path,
                                                             SaveMeter* meter = nullptr);
  // Leaves partial data after an error: the caller owns the folder.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // Returns ResourceExhausted if the disk is full.
  absl::Status append(std::span<const char> bytes);
  // Syncs and closes. Called once, last.
  absl::StatusOr<FileDigest> finish();

 private:
  BlockWriter(std::string path, int fd, SaveMeter* meter);

  absl::Status write_block();
  absl::Status cannot_write(const absl::Status& why) const;

  std::string path_;
  int fd_;
  SaveMeter* const meter_;
  std::unique_ptr<char[]> block_ = make_block();  // filled up to used_
  size_t used_ = 0;
  FileDigest digest_;
};

// Reads blocks of a file with a known digest. Thread-safe.
class BlockReader {
 public:
  // Returns DataLoss, naming the file without its folder, if it is missing or does not have the
  // digest's size. Disk errors are returned as they are.
  static absl::StatusOr<std::unique_ptr<BlockReader>> open(const std::string& folder,
                                                           const std::string& name,
                                                           const FileDigest& digest);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // Reads block `index` into `buffer`, of make_block(), without verifying it. Returns DataLoss if
  // the file ends too early.
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
