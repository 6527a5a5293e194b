#include "common/files/file_read.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"
#include "common/text/absl_view.h"

namespace muster {

absl::StatusOr<std::string> read_file_up_to(size_t bytes_max, const std::string& path,
                                            std::string_view what) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return file_status(errno, what);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  std::string bytes(bytes_max + 1, '\0');
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t got = read(fd, bytes.data() + size, bytes.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return file_status(errno, what);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size > bytes_max) {
    return absl::InvalidArgumentError(
        absl::StrCat(av(what), " is longer than ", bytes_max, " bytes"));
  }
  bytes.resize(size);
  return bytes;
}

absl::StatusOr<std::string> read_plain_file_up_to(size_t bytes_max, const std::string& path,
                                                  std::string_view what) {
  struct stat there {};
  if (stat(path.c_str(), &there) != 0) return file_status(errno, what);
  if (!S_ISREG(there.st_mode))
    return absl::InvalidArgumentError(absl::StrCat(av(what), " is not a plain file"));
  return read_file_up_to(bytes_max, path, what);
}

}  // namespace muster
