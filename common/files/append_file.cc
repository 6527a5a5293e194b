#include "common/files/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/text/absl_view.h"

namespace muster {
namespace {

// Longer last lines are not searched for their begin: no record is that long.
constexpr off_t kLastLineBytesMax = 1 << 20;

// Returns everything after the last newline, but at most kLastLineBytesMax bytes.
absl::StatusOr<std::string> text_after_last_newline(const std::string& path, off_t size) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_status(errno, absl::StrCat("cannot read ", path));
  absl::Cleanup close_file = [fd] { close(fd); };
  std::string text(static_cast<size_t>(std::min(size, kLastLineBytesMax)), '\0');
  const ssize_t bytes = pread(fd, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  if (bytes < 0) return file_status(errno, absl::StrCat("cannot read ", path));
  text.resize(static_cast<size_t>(bytes));
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AppendFile>> AppendFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return file_status(errno, absl::StrCat("cannot open ", path));
  return absl::WrapUnique(new AppendFile(path, fd));
}

AppendFile::~AppendFile() { close(fd_); }

absl::Status AppendFile::append(std::string_view record) {
  const off_t start = lseek(fd_, 0, SEEK_END);  // negative for pipes
  const absl::Status status =
      write_all(fd_, needs_newline_ ? absl::StrCat("\n", av(record)) : std::string(record));
  if (status.ok()) {
    needs_newline_ = false;
    return status;
  }
  std::string message = absl::StrCat("cannot write ", path_, ": ", status.message());
  if (start >= 0 && ftruncate(fd_, start) != 0)
    absl::StrAppend(&message, "; a part of the record remains");
  return absl::Status(status.code(), message);
}

absl::Status AppendFile::end_last_line(absl::FunctionRef<bool(std::string_view line)> is_whole) {
  struct stat file {};
  if (fstat(fd_, &file) != 0) return file_status(errno, absl::StrCat("cannot read ", path_));
  if (!S_ISREG(file.st_mode) || file.st_size == 0) return absl::OkStatus();
  const auto rest = text_after_last_newline(path_, file.st_size);
  if (!rest.ok()) return rest.status();
  if (rest->empty()) return absl::OkStatus();
  if (is_whole(*rest)) {
    needs_newline_ = true;
    return absl::OkStatus();
  }
  if (ftruncate(fd_, file.st_size - static_cast<off_t>(rest->size())) != 0)
    return file_status(errno, absl::StrCat("cannot shorten ", path_));
  return absl::OkStatus();
}

}  // namespace muster
