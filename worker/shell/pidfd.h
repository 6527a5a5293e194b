// A descriptor of a process: what is done through it never meets another process that was given the same number.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <utility>

namespace muster::worker {

class PidFd {
 public:
  // Of a process that is alive, or not reaped yet; -1 inside when there is none.
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
