#include "common/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster {

absl::StatusOr<std::optional<int>> try_lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return errno_status(errno, absl::StrCat("cannot open ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int reason = errno;
  close(fd);
  if (reason == EWOULDBLOCK) return std::nullopt;
  return errno_status(reason, absl::StrCat("cannot lock ", path));
}

}  // namespace muster
