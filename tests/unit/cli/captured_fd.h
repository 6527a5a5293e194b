// A file that stands for a terminal or a pipe, and what was written to it.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string>

namespace muster::cli {

class CapturedFd {
 public:
  CapturedFd() : path_("/tmp/muster-captured-XXXXXX"), fd_(mkstemp(path_.data())) {}
  ~CapturedFd() {
    close(fd_);
    unlink(path_.c_str());
  }
  CapturedFd(const CapturedFd&) = delete;
  CapturedFd& operator=(const CapturedFd&) = delete;

  int fd() const { return fd_; }
  std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  std::string path_;
  int fd_;
};

}  // namespace muster::cli
