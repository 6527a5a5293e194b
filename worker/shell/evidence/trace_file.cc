#include "worker/shell/evidence/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include <absl/strings/str_cat.h>

#include "common/files/errno_status.h"

namespace muster::worker {
TraceFile::~TraceFile() { close_file(); }

void TraceFile::close_file() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

// The folder is often under /tmp, where other users may place links.
absl::Status TraceFile::open() {
  if (fd_ >= 0) return absl::OkStatus();
  fd_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
               mode_);
  if (fd_ < 0) return errno_status(errno, absl::StrCat("opening ", path_));
  struct stat what {};
  const bool is_ours = fstat(fd_, &what) == 0 && S_ISREG(what.st_mode) &&
                       what.st_uid == geteuid() && what.st_nlink == 1;
  if (is_ours) {
    fchmod(fd_, mode_);
    return absl::OkStatus();
  }
  close_file();
  return absl::PermissionDeniedError(absl::StrCat(path_, " is no file of this user"));
}

absl::Status TraceFile::append(std::string_view line) {
  if (auto status = open(); !status.ok()) return status;
  struct stat what {};
  const bool is_moved = fstat(fd_, &what) == 0 && what.st_nlink == 0;
  const bool is_full = static_cast<uint64_t>(what.st_size) + line.size() > bytes_max_;
  if (is_moved || is_full) {
    close_file();
    if (!is_moved && rename(path_.c_str(), absl::StrCat(path_, ".1").c_str()) != 0)
      return errno_status(errno, absl::StrCat("renaming ", path_));
    if (auto status = open(); !status.ok()) return status;
  }
  const std::string whole(std::string(line) + "\n");
  const ssize_t written = write(fd_, whole.data(), whole.size());
  if (written < 0) return errno_status(errno, absl::StrCat("writing ", path_));
  if (static_cast<size_t>(written) == whole.size()) return absl::OkStatus();
  // A partial line would corrupt the next one.
  if (ftruncate(fd_, lseek(fd_, 0, SEEK_END) - written) != 0) close_file();
  return absl::ResourceExhaustedError(absl::StrCat("writing ", path_, ": the disk is full"));
}

}  // namespace muster::worker
