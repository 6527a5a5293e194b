// A file that cannot be opened, as on a file system that does not respond.
#pragma once

#include <fcntl.h>
#include <sys/fanotify.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace muster {

// While it exists, each open() of the file waits in the kernel, with O_NONBLOCK, too: the kernel
// requests this object's permission and gets no answer. Requires root and that the file exists.
class HangingFile {
 public:
  explicit HangingFile(const std::string& path)
      : fd_(fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY)) {
    if (fd_ < 0 || fanotify_mark(fd_, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path.c_str()) != 0)
      release();
  }
  ~HangingFile() { release(); }
  HangingFile(const HangingFile&) = delete;
  HangingFile& operator=(const HangingFile&) = delete;

  // Returns whether opens wait; false if this process may not make them wait.
  bool hangs() const { return fd_ >= 0; }
  // Lets all opens continue.
  void release() {
    if (const int fd = std::exchange(fd_, -1); fd >= 0) close(fd);
  }

 private:
  int fd_;
};

}  // namespace muster
