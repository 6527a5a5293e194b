// Runs a small tool to its end and takes what it says, within a deadline: scontrol, sbatch, py-spy. No shell.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster {

struct ChildOptions {
  Instant deadline{};
  size_t output_bytes_max = size_t{16} << 20;  // more is an error
  size_t errors_bytes_max = size_t{1} << 20;   // more is cut off
  bool apart =
      false;  // in a process group of its own, with nothing of our environment but PATH, HOME and LANG
};

struct ChildEnd {
  std::string output;  // standard output
  std::string errors;  // standard error
  int exit_code = 0;   // 128 + the signal that ended it
};

// `words[0]` is looked for in PATH. It reads nothing. Any thread; blocks until the child has ended. NotFound: there is no such program. It is killed at the deadline
// (DeadlineExceeded) and when it prints too much (ResourceExhausted). One that the kernel does not let go (D state) is left behind within
// kChildReapedWithin, as a child of the calling thread: DeadlineExceeded, too.
constexpr Duration kChildReapedWithin = std::chrono::seconds(1);
absl::StatusOr<ChildEnd> run_child(const std::vector<std::string>& words,
                                   const ChildOptions& options);

}  // namespace muster
