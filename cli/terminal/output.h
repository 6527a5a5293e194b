// An output stream whose reader may stop reading, for example a pager on its first page or a
// terminal after Ctrl-S. A write waits for the reader, but unlike a blocking write() it can be made
// to give up.
#pragma once

#include <atomic>
#include <string_view>

namespace muster::cli {

// Thread-safe.
class Output {
 public:
  // Does not take ownership of `fd`.
  explicit Output(int fd);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int fd() const { return fd_; }
  // Writes all of `text`. Blocks while the reader does not read. Returns false if the reader is
  // gone or the disk is full; from then on, all calls return false immediately.
  bool write(std::string_view text);
  // Returns the errno of the system call that failed; 0 if none has failed, also if a write gave up
  // on a reader that does not read.
  int error() const { return error_; }
  // From now on, a reader that reads nothing for half a second counts as gone. This also applies to
  // a write that waits now.
  void hurry();

 private:
  bool wait_for_reader(int refusals) const;

  const int fd_;
  // A second, non-blocking description of the same pipe or terminal: O_NONBLOCK on `fd_` would
  // affect other processes that share it.
  const int own_fd_;
  const int hurry_fd_;  // readable after hurry()
  std::atomic<bool> is_hurried_{false};
  std::atomic<bool> is_gone_{false};
  std::atomic<int> error_{0};
};

}  // namespace muster::cli
