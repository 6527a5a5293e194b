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

// Mode of the --port-file: its reader may be another user, and ports are no secret.
constexpr mode_t kPortFileMode = 0644;

// Implements --die-with-parent: this process receives SIGTERM when its parent ends. Returns
// FailedPrecondition if the parent ends during the call; an earlier end cannot be detected. The
// kernel ties the signal to the parent's thread: the thread that starts children must live as long
// as they do.
absl::Status die_with_parent();

// Raises the limit of open files to the hard limit. Returns the previous soft limit, which children
// of this process get back: programs with select() break on higher descriptors.
rlim_t raise_open_files_limit();

// Returns the signals that stop a daemon: SIGTERM, SIGINT, and SIGHUP (its terminal closed) unless
// it is ignored, as under nohup.
std::vector<int> leave_signals();

// Returns the absolute path of the running program; an error without /proc.
absl::StatusOr<std::string> own_executable_path();

// Draws a number from the kernel's random device that is unique in the fleet, for incarnations.
absl::StatusOr<uint64_t> draw_random_id();

// Creates `path` with `mode` (less the umask; missing parents with 0777), and checks that files can
// be written there: a read-only or full disk is an error now and not later. An existing folder
// keeps its mode.
absl::Status make_writable_directory(const std::string& path, mode_t mode = 0777);

// Calls `on_signal` on its own thread for each signal of `signals`. Children keep the signals'
// default effect. One per process and set of signals. The destructor restores the default handlers
// and joins the thread.
class SignalListener {
 public:
  static std::unique_ptr<SignalListener> start(const std::vector<int>& signals,
                                               std::function<void(int signo)> on_signal);
  virtual ~SignalListener() = default;
};

}  // namespace muster::daemon
