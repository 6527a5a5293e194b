#include "trainer_core/data/text_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "trainer_core/base/file_kind.h"
#include "trainer_core/data/utf8.h"

namespace muster::trainer {
namespace {

// A file with a larger share of invalid bytes than this is not text.
constexpr double kInvalidShareMax = 0.01;

}  // namespace

absl::StatusOr<std::unique_ptr<TextFile>> TextFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return open_failure(errno, path);
  absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info {};
  if (fstat(fd, &info) != 0) return errno_status(errno, absl::StrCat("cannot examine ", path));
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not a regular file; give a text file"));
  }
  const auto bytes = static_cast<size_t>(info.st_size);
  if (bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat(path, " is empty: there is no text in it"));
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) return errno_status(errno, absl::StrCat("cannot map ", path));
  auto file = absl::WrapUnique(new TextFile(static_cast<const char*>(memory), bytes));
  const std::string_view begins = file->text().substr(0, kFileKindBytes);
  if (auto status = check_no_pointer(path, begins, bytes); !status.ok()) return status;
  return file;
}

TextFile::~TextFile() { munmap(const_cast<char*>(data_), bytes_); }

void TextCheck::add(std::string_view piece, uint64_t offset) {
  const Utf8Report report = scan_utf8(piece);
  if (report.invalid_bytes > 0 && !first_invalid_) first_invalid_ = offset + report.first_invalid;
  invalid_bytes_ += report.invalid_bytes;
  bytes_ += piece.size();
  const size_t nul = piece.find('\0');
  if (nul != std::string_view::npos && !first_nul_) first_nul_ = offset + nul;
  is_blank_ = is_blank_ && piece.find_first_not_of(" \n\r\t\v\f") == std::string_view::npos;
}

absl::Status TextCheck::status(const std::string& path) const {
  if (first_nul_) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is a binary file, not text: NUL byte at offset ", *first_nul_));
  }
  if (static_cast<double>(invalid_bytes_) > kInvalidShareMax * static_cast<double>(bytes_)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is not UTF-8 text: ", invalid_bytes_, " of ", bytes_,
                     " bytes are invalid, the first at offset ", *first_invalid_,
                     "; convert it with iconv first"));
  }
  if (is_blank_)
    return absl::InvalidArgumentError(absl::StrCat(path, " has nothing but blanks in it"));
  return absl::OkStatus();
}

}  // namespace muster::trainer
