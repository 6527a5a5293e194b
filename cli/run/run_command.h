// Runs one of Slurm's programs (scontrol, sbatch) and returns its output.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/run_child.h"
#include "common/time.h"

namespace muster::cli {

// Calls run_child() with this process's environment. Ctrl-C ends the program, too.
absl::StatusOr<ChildEnd> run_command(const std::vector<std::string>& words, Duration deadline);

// Returns the output of a command that exits with 0; otherwise an error with its message. Aborted
// if SIGTERM ended it, because the failure then shows nothing about the request.
absl::StatusOr<std::string> output_of(const std::vector<std::string>& words, Duration deadline);

}  // namespace muster::cli
