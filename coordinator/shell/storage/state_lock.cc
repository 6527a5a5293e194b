#include "coordinator/shell/storage/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster::coordinator {

absl::StatusOr<std::unique_ptr<StateLock>> StateLock::take(const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/coordinator.lock");
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return errno_status(errno, absl::StrCat("state directory ", directory));
  std::unique_ptr<StateLock> lock(new StateLock(fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return errno_status(errno, absl::StrCat("locking ", path));
    std::array<char, 32> text{};
    const ssize_t bytes = pread(fd, text.data(), text.size() - 1, 0);
    const std::string pid(absl::StripAsciiWhitespace(
        absl::string_view(text.data(), bytes > 0 ? static_cast<size_t>(bytes) : 0)));
    return absl::AlreadyExistsError(absl::StrCat(
        "state directory ", directory, " is in use by another coordinator (pid ",
        pid.empty() ? "unknown" : pid, "): stop it, or give this one another --state-dir"));
  }
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) != std::ssize(pid)) {
    return errno_status(errno, absl::StrCat("writing ", path));
  }
  return lock;
}

StateLock::~StateLock() { close(fd_); }

}  // namespace muster::coordinator
