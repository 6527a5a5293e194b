// Runs a small tool (scontrol, sbatch, py-spy) to its end and returns its output, within a
// deadline. Uses no shell.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

#include "common/files/user_rights.h"
#include "common/time/time.h"

namespace muster {

struct ChildOptions {
  Instant deadline{};
  // The tool is killed (DeadlineExceeded) if it has printed nothing until then.
  Instant first_output_by = Instant::max();
  size_t output_bytes_max = size_t{16} << 20;  // bound of standard output; more is an error
  size_t errors_bytes_max = size_t{1} << 20;   // bound of standard error; the rest is dropped
  // Runs the tool in a process group of its own, and passes only PATH, HOME and LANG to it.
  bool apart = false;
  // Replaces our environment; empty: none is replaced. Ignored with `apart`.
  std::vector<std::string> environment = {};
  // Runs the tool in a process group of its own, so that signals to ours do not end it. The kernel
  // kills it if the calling thread ends. If it is killed, the call also waits for the other
  // processes of its group, at most kGroupEndsWithin. Requires `apart` to be false.
  bool own_group = false;
  // Runs the tool as another user, in a process group of its own. Requires root's rights.
  std::optional<UserIds> user = std::nullopt;
  // Called about every kChildWatchInterval while the tool runs; false kills it (Cancelled).
  std::function<bool()> watch = nullptr;
  // Receives standard error while it arrives, up to errors_bytes_max.
  std::function<void(std::string_view)> on_errors = nullptr;
};

constexpr Duration kChildWatchInterval = std::chrono::milliseconds(200);

struct ChildEnd {
  std::string output;  // standard output
  std::string errors;  // standard error
  int exit_code = 0;   // 128 + the signal if a signal ended the child
};

// The maximum time to wait for the end of a killed child.
constexpr Duration kChildReapedWithin = std::chrono::seconds(1);
// The maximum time to wait for the other processes of a killed group: the driver frees a GPU's
// memory in the first seconds after SIGKILL.
constexpr Duration kGroupEndsWithin = std::chrono::seconds(3);

// Runs `words`; words[0] is searched in PATH. Its standard input is empty. Thread-safe; blocks
// until the child has ended. Returns NotFound if there is no such program, DeadlineExceeded if it
// was killed at the deadline, Cancelled if `watch` ended it, ResourceExhausted if it was killed for
// printing too much. A child in D state cannot be killed: after kChildReapedWithin the call returns
// DeadlineExceeded and leaves it as a child of the calling thread.
absl::StatusOr<ChildEnd> run_child(const std::vector<std::string>& words,
                                   const ChildOptions& options);

}  // namespace muster
