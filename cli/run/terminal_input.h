// Passes what is typed at a terminal to a rank's standard input. The terminal itself would stop the
// rank: it belongs to another process group, which keeps Ctrl-C for this program.
#pragma once

#include <memory>
#include <thread>

#include <absl/status/statusor.h>

namespace muster::cli {

// A thread of its own reads while this program is in the terminal's foreground. Its end (Ctrl-D) is
// the end of the input.
class TerminalInput {
 public:
  // Does not take ownership of `terminal`.
  static absl::StatusOr<std::unique_ptr<TerminalInput>> start(int terminal);
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

  // The end of a pipe from which the rank reads. Owned by this object.
  int fd() const { return read_fd_; }

 private:
  TerminalInput(int terminal, int read_fd, int write_fd, int stop_fd)
      : terminal_(terminal), read_fd_(read_fd), write_fd_(write_fd), stop_fd_(stop_fd) {}
  void forward();
  bool wait_for(int fd, short events) const;
  bool pass(const char* data, size_t bytes) const;

  const int terminal_;
  const int read_fd_;
  int write_fd_;  // -1 after the end of the input
  const int stop_fd_;
  std::thread thread_;
};

}  // namespace muster::cli
