// A child process of a command. The child has its own process group, so that a terminal's Ctrl-C
// reaches only this process; the kernel kills the child if this process dies; and the child is
// always reaped. worker/shell/ranks/spawn.h differs in two ways: it sets the environment and the
// log of a rank, and leaves reaping to the worker's loop. A ChildProcess inherits the environment,
// and its owner waits for it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// The description of a child to start.
struct ChildProcessOptions {
  std::vector<std::string> command;  // [0] is the path of the program
  // File to which stdout and stderr are appended; a new file is readable by this user only. Empty:
  // /dev/null.
  std::string output_path;
  int input_fd = -1;  // standard input; -1: /dev/null
};

// The end of a child.
struct ChildExit {
  int code = 0;  // exit code, valid if signal is 0
  int signal = 0;
};

// Owns one child process.
class ChildProcess {
 public:
  // Starts a child. Requires that the calling thread outlives the child, because the kernel kills
  // the child when that thread ends. Errors name the program.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> start(const ChildProcessOptions& options);
  // Kills and reaps the child, unless wait() has returned its end.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Returns a descriptor that becomes readable when the child has ended.
  int pidfd() const { return pidfd_; }
  void signal(int signo) const;
  // Waits for the end of the child, for at most `timeout`; nullopt: the child still runs. Later
  // calls return the same end.
  std::optional<ChildExit> wait(std::chrono::milliseconds timeout);

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  const pid_t pid_;
  const int pidfd_;
  std::optional<ChildExit> exit_;
};

// Returns the path of the program `name` in $MUSTER_BIN_DIR, else beside this executable. Returns
// NotFound, with the folders, if there is none.
absl::StatusOr<std::string> sibling_program(const std::string& name);

// Returns the last bytes of a text file, at most `bytes_max`, without trailing blanks; "" if the
// file cannot be read.
std::string tail_of_file(const std::string& path, size_t bytes_max);

}  // namespace muster::cli
