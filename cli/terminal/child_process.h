// A program that this process started and is responsible for: in its own process group (a terminal's Ctrl-C
// reaches only us), killed by the kernel if we die, reaped in any case. Apart from worker/shell/spawn, whose contract
// is another one: a rank's environment and log, an end that the worker's loop reaps; here the parent's environment
// and an owner that waits.
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
  std::string
      output_path;  // stdout and stderr are appended here, private when new; empty: /dev/null
};

struct ChildExit {
  int code = 0;  // when signal is 0
  int signal = 0;
};

class ChildProcess {
 public:
  // The calling thread must outlive the child: the kernel ties the death signal to it. Errors name the program.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> start(const ChildOptions& options);
  // SIGKILL and reap, unless it has been waited for.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Becomes readable when the child has ended.
  int pidfd() const { return pidfd_; }
  void signal(int signo) const;
  // The end of the child, waiting for it at most `timeout`; repeated calls return the same.
  std::optional<ChildExit> wait(std::chrono::milliseconds timeout);

 private:
  ChildProcess(pid_t pid, int pidfd) : pid_(pid), pidfd_(pidfd) {}

  const pid_t pid_;
  const int pidfd_;
  std::optional<ChildExit> exit_;
};

// The program of that name in $MUSTER_BIN_DIR, else beside our own executable. NotFound names where it was sought.
absl::StatusOr<std::string> sibling_program(const std::string& name);

// The end of a text file, at most `bytes_max` of it, without trailing blanks; empty when it cannot be read.
std::string tail_of_file(const std::string& path, size_t bytes_max);

}  // namespace muster::cli
