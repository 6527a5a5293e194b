// Owns a pidfd, a file descriptor of a process. Operations through a pidfd cannot reach a later
// process that reuses the pid.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <utility>

namespace muster::worker {

class PidFd {
 public:
  // Opens the process `pid`, which may be a zombie. If there is no such process, get() returns -1.
  explicit PidFd(pid_t pid) : fd_(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) {}
  ~PidFd() {
    if (fd_ >= 0) close(fd_);
  }
  PidFd(PidFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  PidFd(const PidFd&) = delete;
  PidFd& operator=(const PidFd&) = delete;
  PidFd& operator=(PidFd&&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace muster::worker
