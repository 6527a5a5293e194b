#include "common/files/ranks_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "common/files/user_rights.h"

namespace muster {

int open_ranks_file(const std::string& path, int access) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const auto owner = foreign_owner(folder.empty() ? "." : folder);
  const FileRights rights(owner);
  errno = EPERM;
  constexpr mode_t kMode = 0600;
  const int flags = access | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (owner ? O_NOFOLLOW : 0);
  const int fd = rights.status().ok() ? open(path.c_str(), flags, kMode) : -1;
  if (fd < 0) return -1;
  struct stat info {};
  // A removed file that is still open has no name.
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (!owner || info.st_nlink <= 1)) return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

}  // namespace muster
