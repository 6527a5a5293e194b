// Runs another program to its end and takes what it says: scontrol, sbatch.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/time.h"

namespace muster::cli {

// What is read of its output; a program that says more is wrong here.
constexpr size_t kCommandOutputMax = size_t{16} << 20;

struct CommandEnd {
  int exit_code = 0;   // 128 + the signal that ended it
  std::string output;  // standard output
  std::string errors;  // standard error
};

// `words[0]` is looked for in PATH. `input` is what it reads. Any thread; blocks. NotFound when there is no such program; DeadlineExceeded
// when it has not ended in time, and is killed then.
absl::StatusOr<CommandEnd> run_command(const std::vector<std::string>& words, Duration deadline,
                                       const std::string& input = "");

// Its output, where it ends with 0; otherwise an error that has its words: Aborted where SIGTERM has ended it, which then was not about it.
absl::StatusOr<std::string> output_of(const std::vector<std::string>& words, Duration deadline);

}  // namespace muster::cli
