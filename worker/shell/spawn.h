// Starting one process.
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
  std::vector<std::string> environment;  // "NAME=value", the whole of it
  std::string directory;                 // working directory
  std::string log_path;                  // stdout and stderr; emptied, then appended to; private
  mode_t umask = 022;
  rlim_t open_files = 0;  // soft limit of descriptors; 0: this process's
  // Where it may run, of those where this process may; none, or none of those: wherever this process may.
  std::vector<int32_t> cpus{};
};

// Starts the process in a process group of its own, with stdin from /dev/null and no other open file, and
// returns its pid. It is killed when the calling thread ends: call it from the thread that lives as long as
// the worker. Errors (a missing program, a full disk) come back with the system's reason; then nothing runs.
absl::StatusOr<pid_t> spawn(const SpawnRequest& request);

}  // namespace muster::worker
