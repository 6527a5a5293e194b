// Starts one process.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::worker {

struct SpawnRequest {
  std::vector<std::string> arguments;    // arguments[0] is the program's path
  std::vector<std::string> environment;  // "NAME=value"; complete, nothing is inherited
  std::string directory;                 // working directory
  std::string log_path;  // stdout and stderr; truncated, then appended to; mode 0600
  mode_t umask = 022;
  rlim_t open_files = 0;  // soft limit of descriptors; 0: this process's
  int input_fd = -1;      // standard input; -1: /dev/null
  // CPUs that the process may use, intersected with this process's; if that is empty, all CPUs of
  // this process.
  std::vector<int32_t> cpus{};
};

// Starts the process in its own process group, with no other open file than these.
// Returns its pid, or the system's error (missing program, full disk), after which nothing runs.
// The kernel kills the process when the calling thread ends: call from a thread that lives as long
// as the worker.
absl::StatusOr<pid_t> spawn(const SpawnRequest& request);

}  // namespace muster::worker
