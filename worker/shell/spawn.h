// Starts processes.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

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
};

// Starts the process in its own process group, with no open file other than these.
// Returns its pid. On failure returns the system's error (for example a missing program or a full
// disk), and no process is left. Requires that the calling thread lives as long as the worker,
// because the kernel kills the process when that thread ends.
absl::StatusOr<pid_t> spawn(const SpawnRequest& request);

}  // namespace muster::worker
