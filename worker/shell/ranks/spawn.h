// Starts processes.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/files/user_rights.h"

namespace muster::worker {

// The description of a process to start.
struct SpawnRequest {
  std::vector<std::string> arguments;  // arguments[0] is the program's path
  // the complete environment as "NAME=value"; no variable is inherited
  std::vector<std::string> environment;
  std::string directory;  // working directory
  std::string log_path;   // file for stdout and stderr, truncated at the start; mode 0600
  mode_t umask = 022;
  rlim_t open_files = 0;  // soft limit of open files; 0: this process's
  int input_fd = -1;      // standard input; -1: /dev/null
  // CPUs on which the process may run. CPUs that this process may not use are ignored; if none
  // remains, the process may use all CPUs of this process.
  std::vector<int32_t> cpus{};
  // The user of the process and of its log; nullopt: this process's.
  std::optional<UserIds> user{};
};

// A child process that has not become its program yet. It enters its working directory and executes
// the program, and either may hang in a file system that does not respond.
struct StartingProcess {
  pid_t pid = 0;
  // Non-blocking end of a pipe: readable once the child has become the program, or cannot.
  int failure_fd = -1;
};

// The reason why a child could not become its program.
struct ExecFailure {
  int error = 0;
  int step = 0;
};

// The state of a child that starts.
enum class StartState { kStarting, kStarted, kFailed };

// Opens the log of a process, with the rights of its user. May block in the file system.
absl::StatusOr<int> open_log(const SpawnRequest& request);

// Starts a child in its own process group, and in its own session if `request` has a user, with no
// open file other than those of `request` and `log_fd`. Does not wait for the child and does not
// block in a file system. Requires that the calling thread lives as long as the worker, because the
// kernel kills the process when that thread ends. Errors are the node's (node_fault()).
absl::StatusOr<StartingProcess> begin_spawn(const SpawnRequest& request, int log_fd);

// Reads the pipe of a child without blocking; sets `failure` if the result is kFailed.
StartState read_start(int failure_fd, ExecFailure& failure);

// Describes the failure. May block in the file system, because it reads the program's file. Errors
// of the node are marked by node_fault().
absl::Status describe_failure(const ExecFailure& failure, const SpawnRequest& request);

// Starts a process, waits until it has become the program, and returns its pid. On failure returns
// the error as above, and no process is left.
absl::StatusOr<pid_t> spawn(const SpawnRequest& request);

}  // namespace muster::worker
