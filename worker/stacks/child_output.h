// Runs a small tool and takes what it prints, within a deadline. No shell; it gets nothing of ours but PATH, HOME and LANG.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster::worker {

struct ChildOutput {
  std::string output;
  std::string error;
  int exit_code = 0;  // -1: a signal ended it
};

struct ChildOutputLimits {
  size_t output_bytes_max = 0;  // more is an error
  size_t error_bytes_max = 0;   // more is cut off
};

// Blocks until the child has ended; it is killed at `deadline` (DeadlineExceeded) and when it prints too much (ResourceExhausted). One that the
// kernel does not let go (D state) is left behind within kChildReapedWithin, as a child of the calling thread: DeadlineExceeded, too.
constexpr Duration kChildReapedWithin = std::chrono::seconds(1);
absl::StatusOr<ChildOutput> run_child(const std::vector<std::string>& command,
                                      const ChildOutputLimits& limits, Instant deadline);

}  // namespace muster::worker
