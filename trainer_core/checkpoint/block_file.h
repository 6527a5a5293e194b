// Files with a checksum per block of kBlockBytes, so that a reader of a part of a file reads and
// verifies only the blocks that contain the part. XXH3 (64 bits; Collet, the xxHash library)
// detects damage by disks and memory, not by an attacker. It is faster than any disk, whereas
// CRC-32 was the slowest part of a save.
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

// The bytes of a block, which is read and written as a whole: large enough for the full speed of a
// disk, and small enough that a block is still in the CPU cache when its checksum is computed.
constexpr size_t kBlockBytes = size_t{4} << 20;

// The size of a file and the checksums of its blocks.
struct FileDigest {
  uint64_t bytes = 0;
  std::vector<uint64_t> blocks;  // checksum of each block; the last block may be shorter

  friend bool operator==(const FileDigest&, const FileDigest&) = default;
};

// Allocates a buffer of kBlockBytes. Pages that are not used take no memory.
inline std::unique_ptr<char[]> make_block() {
  return std::make_unique_for_overwrite<char[]>(kBlockBytes);
}

// Returns the checksum of a block.
uint64_t checksum(std::span<const char> bytes);
// Formats a checksum as 16 hexadecimal digits. JSON files have it as a string, because many JSON
// readers represent integers only up to 2^53 exactly.
std::string checksum_text(uint64_t checksum);

// The maximum bytes that were written but are not on the disk yet. A larger bound would only hide a
// slow disk: the kernel accepts gigabytes, and the sync at the end would then take minutes without
// visible progress.
constexpr size_t kWritebackBytesMax = 32 * kBlockBytes;

// Writes a file sequentially. The writeback of a block to the disk starts when the block is
// complete, and append() blocks while more than kWritebackBytesMax wait for the disk. So finish()
// waits only for the last blocks. Called on one thread only.
class BlockWriter {
 public:
  // Creates the file. Returns AlreadyExists if it exists, since another process may be writing it.
  // All errors of the class contain the path. `meter`, which may be null and must outlive the
  // writer, counts the written blocks.
  static absl::StatusOr<std::unique_ptr<BlockWriter>> create(const std::string& path,
                                                             SaveMeter* meter = nullptr);
  // Closes the file. After an error a partial file remains, which the owner of the folder removes.
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  // Appends bytes. Returns ResourceExhausted if the disk is full.
  absl::Status append(std::span<const char> bytes);
  // Syncs and closes the file, and returns its digest. Called once, as the last call.
  absl::StatusOr<FileDigest> finish();

 private:
  BlockWriter(std::string path, int fd, SaveMeter* meter);

  absl::Status write_block();
  absl::Status cannot_write(const absl::Status& why) const;

  std::string path_;
  int fd_;
  SaveMeter* const meter_;
  std::unique_ptr<char[]> block_ = make_block();  // bytes [0, used_) are filled
  size_t used_ = 0;
  FileDigest digest_;
};

// Reads the blocks of a file whose digest is known. Thread-safe.
class BlockReader {
 public:
  // Opens the file. Returns DataLoss with the name (without the folder) if it is missing or does
  // not have the size of `digest`. Returns errors of the disk as they are.
  static absl::StatusOr<std::unique_ptr<BlockReader>> open(const std::string& folder,
                                                           const std::string& name,
                                                           const FileDigest& digest);
  ~BlockReader();
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;

  // Reads block `index` into `buffer`, a buffer of make_block(), without verifying it. Returns
  // DataLoss if the file ends too early.
  absl::StatusOr<std::span<const char>> read(size_t index, char* buffer) const;
  // Compares a block with its checksum. Returns DataLoss with the range of bytes if it differs.
  absl::Status verify(size_t index, std::span<const char> block) const;

 private:
  BlockReader(std::string name, FileDigest digest, int fd)
      : name_(std::move(name)), digest_(std::move(digest)), fd_(fd) {}

  std::string name_;
  FileDigest digest_;
  int fd_;
};

}  // namespace muster::trainer
