#include "trainer_core/text/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <zlib.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/base/machine_memory.h"
#include "trainer_core/text/unread_compression.h"

namespace muster::trainer {
namespace {

// Large enough to amortize the system call.
constexpr size_t kBufferBytes = 256 << 10;
constexpr std::string_view kGzipMagic = "\x1F\x8B";
constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";
// The magic of a skippable frame, whose first byte is 0x50 to 0x5F: pzstd and seekable files may
// begin with one (RFC 8878, 3.1.2).
constexpr std::string_view kZstdSkippableMagic = "\x2A\x4D\x18";
// The format's own limit of the library: a window of 2 GiB.
constexpr int kZstdWindowLogMax = 31;
// A larger window's memory is compared with the available memory while it fills: steps of that
// size, with as much left for the rest of the program.
constexpr uint64_t kZstdWindowStepBytes = uint64_t{64} << 20;
// The longest header of a frame (RFC 8878, 3.1.1.1).
constexpr size_t kZstdHeaderBytes = 18;
// For zlib: 15 bits of window, and a gzip header.
constexpr int kGzipWindowBits = 15 + 16;

class PlainSource : public ByteSource {
 public:
  PlainSource(std::string path, int fd, const struct stat& opened)
      : path_(std::move(path)), fd_(fd), opened_(opened) {}
  ~PlainSource() override { close(fd_); }
  PlainSource(const PlainSource&) = delete;
  PlainSource& operator=(const PlainSource&) = delete;

  absl::StatusOr<size_t> read(std::span<char> out) override {
    ssize_t count = 0;
    do {
      count = pread(fd_, out.data(), out.size(), static_cast<off_t>(position_));
    } while (count < 0 && errno == EINTR);
    if (count < 0)
      return errno_status(errno, absl::StrCat("cannot read ", path_, " at offset ", position_));
    position_ += static_cast<uint64_t>(count);
    if (count == 0 && !out.empty()) {
      if (auto status = check_unchanged(); !status.ok()) return status;
    }
    return static_cast<size_t>(count);
  }

  absl::Status skip(uint64_t bytes) override {
    struct stat info {};
    if (fstat(fd_, &info) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path_));
    const uint64_t left = static_cast<uint64_t>(info.st_size) - position_;
    if (static_cast<uint64_t>(info.st_size) < position_ || left < bytes) {
      return absl::DataLossError(absl::StrCat(path_, " ends at offset ", info.st_size,
                                              ", before offset ", position_ + bytes));
    }
    position_ += bytes;
    return absl::OkStatus();
  }

  uint64_t file_position() const override { return position_; }
  const std::string& path() const { return path_; }

 private:
  // Called at the end. If the file has changed, the bytes read may be a mixture of two versions.
  absl::Status check_unchanged() const {
    struct stat now {};
    if (fstat(fd_, &now) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path_));
    const bool is_same = now.st_size == opened_.st_size &&
                         now.st_mtim.tv_sec == opened_.st_mtim.tv_sec &&
                         now.st_mtim.tv_nsec == opened_.st_mtim.tv_nsec;
    if (is_same) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(path_, " was changed while it was read: it ends at offset ", now.st_size,
                     " now, and had ", opened_.st_size, " bytes when it was opened"));
  }

  const std::string path_;
  const int fd_;  // owned
  const struct stat opened_;
  uint64_t position_ = 0;
};

// Supplies a decoder with the bytes of the file in order.
class Compressed {
 public:
  explicit Compressed(std::unique_ptr<PlainSource> file) : file_(std::move(file)) {}

  // Ensures that at least one byte is available, unless the file is at its end.
  absl::Status fill() {
    if (!left_.empty()) return absl::OkStatus();
    const auto count = file_->read(buffer_);
    if (!count.ok()) return count.status();
    left_ = std::string_view(buffer_.data(), *count);
    return absl::OkStatus();
  }
  std::string_view left() const { return left_; }
  void use(size_t bytes) { left_.remove_prefix(bytes); }
  uint64_t position() const { return file_->file_position() - left_.size(); }

  absl::Status damaged(std::string_view kind, std::string_view why) const {
    return absl::DataLossError(absl::StrCat(file_->path(), " is damaged at offset ", position(),
                                            " (", std::string(kind), "): ", std::string(why)));
  }
  // For data that is intact and cannot be decoded here.
  absl::Status refused(std::string_view why) const {
    return absl::InvalidArgumentError(absl::StrCat(file_->path(), ": ", av(why)));
  }
  const std::string& path() const { return file_->path(); }
  absl::Status ends_early(std::string_view kind) const {
    return damaged(kind, "the file ends in the middle of its compressed data");
  }

 private:
  std::unique_ptr<PlainSource> file_;
  std::vector<char> buffer_ = std::vector<char>(kBufferBytes);
  std::string_view left_;
};

// Returns what follows the compressed data of a file that has something behind it.
std::string trailing_problem(std::string_view rest) {
  std::string_view what = "not compressed";
  if (const std::string_view unread = unread_compression(rest); !unread.empty()) what = unread;
  if (rest.starts_with(kGzipMagic)) what = "gzip";
  if (rest.starts_with(kZstdMagic)) what = "zstd";
  return absl::StrCat("the bytes behind the compressed data are ", av(what),
                      "; decompress the parts one by one, or cut the file here");
}

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(std::unique_ptr<PlainSource> file) : in_(std::move(file)) {
    is_ready_ = inflateInit2(&stream_, kGzipWindowBits) == Z_OK;
  }
  ~GzipSource() override {
    if (is_ready_) inflateEnd(&stream_);
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  absl::StatusOr<size_t> read(std::span<char> out) override {
    if (!is_ready_) return absl::ResourceExhaustedError("zlib has no memory to decompress with");
    size_t made = 0;
    while (made == 0 && !out.empty()) {
      if (auto status = in_.fill(); !status.ok()) return status;
      if (in_.left().empty()) {
        if (!in_member_) return 0;
        return in_.ends_early("gzip");
      }
      if (!in_member_) {
        if (auto status = begin_member(); !status.ok()) return status;
        if (!in_member_) continue;
      }
      const auto count = inflate_some(out);
      if (!count.ok()) return count.status();
      made = *count;
    }
    return made;
  }

  uint64_t file_position() const override { return in_.position(); }

 private:
  // Begins the next member. A member is followed by another member, padding zeros (as on tapes), or
  // the end.
  absl::Status begin_member() {
    if (in_.left().front() == '\0' && members_ > 0) {
      in_.use(std::min(in_.left().find_first_not_of('\0'), in_.left().size()));
      return absl::OkStatus();
    }
    // A member's first byte; the second one may be in the next buffer, and zlib checks it.
    if (members_ > 0 && in_.left().front() != kGzipMagic.front())
      return in_.damaged("gzip", trailing_problem(in_.left()));
    if (inflateReset(&stream_) != Z_OK) return in_.damaged("gzip", "zlib cannot begin a member");
    in_member_ = true;
    ++members_;
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> inflate_some(std::span<char> out) {
    const std::string_view left = in_.left();
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(left.data()));
    stream_.avail_in = static_cast<uInt>(left.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    const auto room = static_cast<uInt>(std::min(out.size(), kBufferBytes));
    stream_.avail_out = room;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    in_.use(left.size() - stream_.avail_in);
    if (code == Z_STREAM_END) {
      in_member_ = false;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return in_.damaged("gzip", stream_.msg != nullptr ? stream_.msg : "zlib refuses it");
    }
    return room - stream_.avail_out;
  }

  Compressed in_;
  z_stream stream_{};
  bool is_ready_ = false;
  bool in_member_ = false;
  uint64_t members_ = 0;
};

// The size of the window that a frame's header requires (RFC 8878, 3.1.1.1); 0 if the header is not
// complete, or not a frame's.
uint64_t zstd_window_bytes(std::string_view header) {
  constexpr size_t kDescriptor = 4;
  if (!header.starts_with(kZstdMagic) || header.size() < kDescriptor + 2) return 0;
  const auto byte = [&](size_t at) {
    return static_cast<uint64_t>(static_cast<uint8_t>(header[at]));
  };
  const uint64_t descriptor = byte(kDescriptor);
  const bool is_single_segment = (descriptor & 0x20) != 0;
  if (!is_single_segment) {
    const uint64_t window = byte(kDescriptor + 1);
    const uint64_t base = uint64_t{1} << (10 + (window >> 3));
    return base + base / 8 * (window & 7);
  }
  // The window is the content's size, which follows the dictionary's id.
  constexpr size_t kIdBytes[] = {0, 1, 2, 4};
  constexpr size_t kSizeBytes[] = {1, 2, 4, 8};
  const size_t begin = kDescriptor + 1 + kIdBytes[descriptor & 3];
  const size_t count = kSizeBytes[descriptor >> 6];
  if (header.size() < begin + count) return 0;
  uint64_t size = count == 2 ? 256 : 0;
  for (size_t i = 0; i < count; ++i) size += byte(begin + i) << (8 * i);
  return size;
}

class ZstdSource : public ByteSource {
 public:
  ZstdSource(std::unique_ptr<PlainSource> file, MachineRoots roots)
      : in_(std::move(file)), roots_(std::move(roots)), stream_(ZSTD_createDStream()) {
    // Permits --long=28 to --long=31; memory is taken for the windows that frames have.
    if (stream_ != nullptr)
      (void)ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kZstdWindowLogMax);
  }
  ~ZstdSource() override { ZSTD_freeDStream(stream_); }
  ZstdSource(const ZstdSource&) = delete;
  ZstdSource& operator=(const ZstdSource&) = delete;

  absl::StatusOr<size_t> read(std::span<char> out) override {
    if (stream_ == nullptr)
      return absl::ResourceExhaustedError("zstd has no memory to decompress with");
    ZSTD_outBuffer to{out.data(), out.size(), 0};
    while (to.pos == 0 && to.size > 0) {
      if (auto status = in_.fill(); !status.ok()) return status;
      // Without more input, the decoder may still have output.
      if (in_.left().empty() && expected_ == 0) return 0;
      ZSTD_inBuffer from{in_.left().data(), in_.left().size(), 0};
      const bool at_end = from.size == 0;
      if (expected_ == 0) {
        header_.clear();
        frame_bytes_ = 0;
      }
      header_ +=
          in_.left().substr(0, kZstdHeaderBytes - std::min(header_.size(), kZstdHeaderBytes));
      const size_t code = ZSTD_decompressStream(stream_, &to, &from);
      if (ZSTD_isError(code) != 0) return failed(code, from.pos);
      in_.use(from.pos);
      if (code == 0) ++frames_;
      expected_ = code;
      if (auto status = check_window_memory(to.pos); !status.ok()) return status;
      if (at_end && to.pos == 0 && expected_ != 0) return in_.ends_early("zstd");
    }
    return to.pos;
  }

  uint64_t file_position() const override { return in_.position(); }

 private:
  // `used`: bytes of the input that zstd has consumed before it failed.
  absl::Status failed(size_t code, size_t used) {
    const bool is_trailing = ZSTD_getErrorCode(code) == ZSTD_error_prefix_unknown && frames_ > 0;
    if (is_trailing) return in_.damaged("zstd", trailing_problem(in_.left()));
    in_.use(used);
    const std::string_view why = ZSTD_getErrorName(code);
    switch (ZSTD_getErrorCode(code)) {
      case ZSTD_error_frameParameter_windowTooLarge:
        return in_.refused(absl::StrCat(
            "its zstd window is ", window_text(),
            ", and at most 2 GiB (--long=31) are decoded; "
            "recompress it: zstd -d --ultra --long=31 --memory=4096MB -c FILE | zstd -o NEW"));
      case ZSTD_error_memory_allocation:
        return no_memory("");
      case ZSTD_error_dictionary_wrong:
      case ZSTD_error_dictionary_corrupted:
        return in_.refused(
            "it needs a zstd dictionary, which is not read; recompress it: zstd -d -D DICTIONARY "
            "-c FILE | zstd -o NEW");
      default:
        break;
    }
    return in_.damaged("zstd", why);
  }

  // The pages of a window are taken as it fills. Without this check the kernel kills the process in
  // a container whose memory is smaller than the window.
  absl::Status check_window_memory(uint64_t made) {
    const uint64_t before = frame_bytes_;
    frame_bytes_ += made;
    const bool is_step = before / kZstdWindowStepBytes != frame_bytes_ / kZstdWindowStepBytes;
    if (!is_step || frame_bytes_ > zstd_window_bytes(header_)) return absl::OkStatus();
    const auto available = available_memory(roots_);
    if (!available || available->bytes >= 2 * kZstdWindowStepBytes) return absl::OkStatus();
    return no_memory(absl::StrCat(" (", available->bytes >> 20, " MiB are available",
                                  limit_note(*available), ", and ", frame_bytes_ >> 20,
                                  " MiB of the window are in use)"));
  }

  absl::Status no_memory(const std::string& detail) const {
    return absl::ResourceExhaustedError(absl::StrCat(
        in_.path(), ": there is no memory for its zstd window of ", window_text(), detail,
        "; recompress it where there is: zstd -d --long=31 -c FILE | zstd -o NEW"));
  }

  std::string window_text() const {
    const uint64_t bytes = zstd_window_bytes(header_);
    return bytes == 0 ? std::string("too large") : absl::StrCat(bytes, " bytes");
  }

  Compressed in_;
  const MachineRoots roots_;
  ZSTD_DStream* const stream_;
  uint64_t frame_bytes_ = 0;  // decompressed bytes of the frame
  size_t expected_ = 0;       // bytes that zstd expects next; 0: between two frames
  std::string header_;        // the first bytes of the frame
  uint64_t frames_ = 0;       // complete ones
};

bool is_zstd(std::string_view begins) {
  return begins.starts_with(kZstdMagic) || (begins.size() > kZstdSkippableMagic.size() &&
                                            (static_cast<uint8_t>(begins[0]) & 0xF0) == 0x50 &&
                                            begins.substr(1).starts_with(kZstdSkippableMagic));
}

}  // namespace

absl::Status ByteSource::skip(uint64_t bytes) {
  std::vector<char> passed(kBufferBytes);
  while (bytes > 0) {
    const auto count =
        read(std::span(passed).first(static_cast<size_t>(std::min<uint64_t>(bytes, kBufferBytes))));
    if (!count.ok()) return count.status();
    if (*count == 0)
      return absl::DataLossError(absl::StrCat("the text ends ", bytes, " bytes too early"));
    bytes -= *count;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::open(const std::string& path,
                                                             const MachineRoots& roots) {
  // Opening a pipe must not block.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return open_failure(errno, path);
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  std::array<char, kFileKindBytes> magic{};
  const ssize_t count = pread(fd, magic.data(), magic.size(), 0);
  if (count < 0) return errno_status(errno, absl::StrCat("cannot read ", path));
  const std::string_view begins(magic.data(), static_cast<size_t>(count));
  if (auto status = check_no_pointer(path, begins, static_cast<uint64_t>(info.st_size));
      !status.ok())
    return status;
  if (auto status = check_decodable(path, begins); !status.ok()) return status;
  // The file is read once, sequentially. A failed hint has no effect.
  (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  std::move(close_file).Cancel();
  auto file = std::make_unique<PlainSource>(path, fd, info);
  if (begins.starts_with(kGzipMagic)) return std::make_unique<GzipSource>(std::move(file));
  if (is_zstd(begins)) return std::make_unique<ZstdSource>(std::move(file), roots);
  return file;
}

}  // namespace muster::trainer
