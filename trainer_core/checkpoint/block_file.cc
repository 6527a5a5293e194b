#include "trainer_core/checkpoint/block_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#define XXH_INLINE_ALL  // compiles its loops with our flags
#include <xxhash.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "trainer_core/base/check.h"
#include "trainer_core/checkpoint/visible.h"

namespace muster::trainer {

uint64_t checksum(std::span<const char> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string checksum_text(uint64_t checksum) { return absl::StrFormat("%016x", checksum); }

// Writing
// -------------------------------------------------------------------------------------------------

BlockWriter::BlockWriter(std::string path, int fd, SaveMeter* meter)
    : path_(std::move(path)), fd_(fd), meter_(meter) {}

absl::StatusOr<std::unique_ptr<BlockWriter>> BlockWriter::create(const std::string& path,
                                                                 SaveMeter* meter) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return file_status(errno, absl::StrCat("cannot create ", path));
  return absl::WrapUnique(new BlockWriter(path, fd, meter));
}

BlockWriter::~BlockWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status BlockWriter::cannot_write(const absl::Status& why) const {
  return absl::Status(why.code(), absl::StrCat("cannot write ", path_, ": ", why.message()));
}

absl::Status BlockWriter::append(std::span<const char> bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kBlockBytes - used_);
    std::memcpy(block_.get() + used_, bytes.data(), count);
    used_ += count;
    bytes = bytes.subspan(count);
    if (used_ < kBlockBytes) continue;
    if (auto status = write_block(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status BlockWriter::write_block() {
  const std::span<const char> block(block_.get(), std::exchange(used_, 0));
  digest_.blocks.push_back(checksum(block));
  if (auto status = write_all(fd_, {block.data(), block.size()}); !status.ok())
    return cannot_write(status);
  // This only starts the writeback early; the sync at the end ensures that the data is on disk.
  (void)sync_file_range(fd_, static_cast<off_t>(digest_.bytes), static_cast<off_t>(block.size()),
                        SYNC_FILE_RANGE_WRITE);
  if (digest_.bytes >= kWritebackBytesMax) {
    constexpr unsigned kWait =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    const int waited = sync_file_range(fd_, static_cast<off_t>(digest_.bytes - kWritebackBytesMax),
                                       static_cast<off_t>(kBlockBytes), kWait);
    // The wait reports an error of the disk once, and the sync at the end does not report it again.
    // It is not an error if the file system cannot wait for a range.
    if (waited != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
      return cannot_write(file_status(errno, "sync_file_range"));
  }
  digest_.bytes += block.size();
  if (meter_ != nullptr) meter_->add(block.size());
  return absl::OkStatus();
}

absl::StatusOr<FileDigest> BlockWriter::finish() {
  if (used_ > 0) {
    if (auto status = write_block(); !status.ok()) return status;
  }
  if (fsync(fd_) != 0) return cannot_write(file_status(errno, "fsync"));
  // A network file system may report a full disk only when the file is closed.
  if (close(std::exchange(fd_, -1)) != 0) return cannot_write(file_status(errno, "close"));
  return std::move(digest_);
}

// Reading
// -------------------------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<BlockReader>> BlockReader::open(const std::string& folder,
                                                               const std::string& name,
                                                               const FileDigest& digest) {
  const std::string path = absl::StrCat(folder, "/", name);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  // A missing file is damage of the checkpoint; other errors of the disk may be temporary.
  if (fd < 0 && errno == ENOENT)
    return not_visible_yet(absl::DataLossError(absl::StrCat("it has no ", name)));
  if (fd < 0) return file_status(errno, absl::StrCat("cannot open ", path));
  auto reader = absl::WrapUnique(new BlockReader(name, digest, fd));
  struct stat info {};
  if (fstat(fd, &info) != 0) return file_status(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_size) != digest.bytes) {
    return absl::DataLossError(absl::StrCat(name, " is truncated or was changed: ", info.st_size,
                                            " bytes, the manifest states ", digest.bytes));
  }
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  return reader;
}

BlockReader::~BlockReader() { close(fd_); }

absl::StatusOr<std::span<const char>> BlockReader::read(size_t index, char* buffer) const {
  MUSTER_CHECK(index < digest_.blocks.size()) << name_;
  const uint64_t begin = index * kBlockBytes;
  const auto bytes = static_cast<size_t>(std::min<uint64_t>(kBlockBytes, digest_.bytes - begin));
  for (size_t done = 0; done < bytes;) {
    const ssize_t count = pread(fd_, buffer + done, bytes - done, static_cast<off_t>(begin + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return file_status(errno, absl::StrCat("cannot read ", name_, " at byte ", begin + done));
    if (count == 0)
      return absl::DataLossError(absl::StrCat(name_, " ends at byte ", begin + done,
                                              " now, the manifest states ", digest_.bytes));
    done += static_cast<size_t>(count);
  }
  return std::span<const char>(buffer, bytes);
}

absl::Status BlockReader::verify(size_t index, std::span<const char> block) const {
  if (checksum(block) == digest_.blocks[index]) return absl::OkStatus();
  const uint64_t begin = index * kBlockBytes;
  return absl::DataLossError(absl::StrCat(name_, " is damaged: the checksum of its bytes ", begin,
                                          " to ", begin + block.size() - 1, " differs"));
}

}  // namespace muster::trainer
