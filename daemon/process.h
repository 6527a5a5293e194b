// What both daemons do with their own process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace muster::daemon {

// --die-with-parent: this process gets SIGTERM when the process that started it is gone.
// FailedPrecondition when that has already happened. The kernel ties the signal to the parent's
// thread: a parent keeps the thread that started its children until they are done.
absl::Status die_with_parent();

// The absolute path of the running program, or an error without /proc.
absl::StatusOr<std::string> own_executable_path();

// A number that no other process of the fleet draws, for incarnations: from the kernel's random
// device.
absl::StatusOr<uint64_t> draw_random_id();

// This machine's name; "localhost" when it has none.
std::string host_name();

// Writes `content` to `path` through a temporary file beside it and a rename, so that a reader sees
// all or nothing. The error names the path.
absl::Status write_file_atomically(const std::string& path, std::string_view content);

// Creates `path` and its missing parents, and checks that files can be written there: a read-only
// or full disk is an error now and not later.
absl::Status make_writable_directory(const std::string& path);

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
