// Process-level functions shared by both daemons.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::daemon {

// The mode of the --port-file: its reader may be another user, and port numbers are not secret.
constexpr mode_t kPortFileMode = 0644;

// Implements --die-with-parent: makes the kernel send SIGTERM to this process when its parent ends.
// Returns FailedPrecondition if the parent ends during the call; an earlier end cannot be detected.
// The kernel ties the signal to the parent's thread, so the thread that starts a child must not end
// before the child.
absl::Status die_with_parent();

// Raises the limit of open files to the hard limit. Returns the previous soft limit, which children
// of this process have to restore, because programs that use select() fail with higher descriptors.
rlim_t raise_open_files_limit();

// Returns the signals that stop a daemon: SIGTERM, SIGINT, and SIGHUP (the terminal was closed)
// unless SIGHUP is ignored, as under nohup.
std::vector<int> leave_signals();

// Returns the absolute path of the running program; an error without /proc.
absl::StatusOr<std::string> own_executable_path();

// Returns a random number from the kernel that is unique in the fleet, for incarnations.
absl::StatusOr<uint64_t> draw_random_id();

// Creates folder `path` with `mode` (less the umask), and missing parents with 0777. Checks that
// files can be written there, so that a read-only or full disk is an error at the start and not
// later. Does not change the mode of an existing folder.
absl::Status make_writable_directory(const std::string& path, mode_t mode = 0777);

// Calls `on_signal` on its own thread for each signal of `signals`. In child processes the signals
// have their default effect. A process may have one listener for each set of signals. The
// destructor restores the default handlers and joins the thread.
class SignalListener {
 public:
  static std::unique_ptr<SignalListener> start(const std::vector<int>& signals,
                                               std::function<void(int signo)> on_signal);
  virtual ~SignalListener() = default;
};

}  // namespace muster::daemon
