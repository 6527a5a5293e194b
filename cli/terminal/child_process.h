// A child process that this process owns. It has its own process group (a terminal's Ctrl-C reaches
// only us), the kernel kills it if we die, and it is always reaped. It is separate from
// worker/shell/spawn, which gives a rank its environment and log and leaves reaping to the worker's
// loop; a ChildProcess inherits the parent's environment and its owner waits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

struct ChildOptions {
  std::vector<std::string> command;  // [0] is the path of the program
  // stdout and stderr are appended to this file, which is private when new; empty: /dev/null.
  std::string output_path;
  int input_fd = -1;  // standard input; -1: /dev/null
};

struct ChildExit {
  int code = 0;  // valid when signal is 0
  int signal = 0;
};

class ChildProcess {
 public:
  // The calling thread must outlive the child: the kernel ties the death signal to it. Errors name
  // the program.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> start(const ChildOptions& options);
  // Sends SIGKILL and reaps, unless the child was waited for.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Becomes readable when the child has ended.
  int pidfd() const { return pidfd_; }
  void signal(int signo) const;
  // Waits for the end of the child for at most `timeout`. Repeated calls return the same result.
  std::optional<ChildExit> wait(std::chrono::milliseconds timeout);

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  const pid_t pid_;
  const int pidfd_;
  std::optional<ChildExit> exit_;
};

// Returns the program of that name in $MUSTER_BIN_DIR, else beside this executable. NotFound names
// the folders.
absl::StatusOr<std::string> sibling_program(const std::string& name);

// Returns the end of a text file, at most `bytes_max`, without trailing blanks; empty if it cannot
// be read.
std::string tail_of_file(const std::string& path, size_t bytes_max);

}  // namespace muster::cli
