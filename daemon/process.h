// What both daemons do with their own process.
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

// Of the file of --port-file: whoever starts a daemon reads it, perhaps as another user, and ports are no secret.
constexpr mode_t kPortFileMode = 0644;

// --die-with-parent: this process gets SIGTERM when the process that started it is gone.
// FailedPrecondition when that happens during the call; what happened earlier cannot be known. The kernel ties the signal to the parent's
// thread: a parent keeps the thread that started its children until they are done.
absl::Status die_with_parent();

// Lets this process open as many files as its hard limit allows. Returns the soft limit as it was: programs that use
// select() break on higher descriptors, so who is started by this process gets that one back.
rlim_t raise_open_files_limit();

// What asks a daemon to leave: SIGTERM, SIGINT, and SIGHUP (its terminal is gone) unless nohup or the like has it ignored.
std::vector<int> leave_signals();

// The absolute path of the running program, or an error without /proc.
absl::StatusOr<std::string> own_executable_path();

// A number that no other process of the fleet draws, for incarnations: from the kernel's random
// device.
absl::StatusOr<uint64_t> draw_random_id();

// This machine's name; "localhost" when it has none.
std::string host_name();

// Creates `path` with `mode` (less the umask, as its missing parents' 0777), and checks that files
// can be written there: a read-only or full disk is an error now and not later. A folder that is
// there keeps its mode.
absl::Status make_writable_directory(const std::string& path, mode_t mode = 0777);

// Calls `on_signal` on a thread of its own for each signal of `signals`. Signals keep their effect
// on children. One per process and set of signals. The destructor restores the default handlers and
// joins the thread.
class SignalListener {
 public:
  static std::unique_ptr<SignalListener> start(const std::vector<int>& signals,
                                               std::function<void(int signo)> on_signal);
  virtual ~SignalListener() = default;
};

}  // namespace muster::daemon
