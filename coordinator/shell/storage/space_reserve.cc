#include "coordinator/shell/storage/space_reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::coordinator {

void SpaceReserve::take() {
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  struct stat info {};
  const bool is_reserved = fstat(fd, &info) == 0 && info.st_size >= kReservedBytes &&
                           info.st_blocks * int64_t{512} >= kReservedBytes;
  const bool taken = is_reserved || posix_fallocate(fd, 0, kReservedBytes) == 0;
  // A part of the space would be missing from the state.
  if (!taken) unlink(path_.c_str());
  close(fd);
}

bool SpaceReserve::release() {
  struct stat info {};
  return stat(path_.c_str(), &info) == 0 && info.st_blocks > 0 && unlink(path_.c_str()) == 0;
}

}  // namespace muster::coordinator
