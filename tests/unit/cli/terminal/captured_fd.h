// A file that replaces a terminal or a pipe; text() returns the output written to fd().
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "tests/unit/temp_folder.h"

namespace muster::cli {

class CapturedFd {
 public:
  CapturedFd()
      : path_(folder_.file("captured")),
        fd_(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  ~CapturedFd() { close(fd_); }
  CapturedFd(const CapturedFd&) = delete;
  CapturedFd& operator=(const CapturedFd&) = delete;

  int fd() const { return fd_; }
  std::string text() const { return read_file(path_); }

 private:
  const TempFolder folder_;
  const std::string path_;
  const int fd_;
};

}  // namespace muster::cli
