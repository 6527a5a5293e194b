// A stream whose reader may stop reading: a pager that shows its first page, a terminal after Ctrl-S. A write waits for
// it, but can be told to wait no longer, which a blocking write() cannot.
#pragma once

#include <atomic>
#include <string_view>

namespace muster::cli {

// Any thread.
class Output {
 public:
  // Whoever gave us `fd` closes it.
  explicit Output(int fd);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  int fd() const { return fd_; }
  // Writes all of `text`. False when the reader is gone or the disk is full, and at once from then on.
  bool write(std::string_view text);
  // Why nothing can be written any more, as errno says it; 0 while it can, and where the reader takes nothing.
  int error() const { return error_; }
  // From now on, and for a write that is waiting now, a reader that takes nothing for half a second is gone.
  void hurry();

 private:
  bool wait_for_reader(int refusals) const;

  const int fd_;
  // The same pipe or terminal without blocking, which cannot be set on `fd_`: other processes share that.
  const int own_fd_;
  const int hurry_fd_;  // readable once there is a hurry
  std::atomic<bool> is_hurried_{false};
  std::atomic<bool> is_gone_{false};
  std::atomic<int> error_{0};
};

}  // namespace muster::cli
