// Runs one of Slurm's programs (scontrol, sbatch) and returns its output.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/process/run_child.h"
#include "common/time/time.h"

namespace muster::cli {

// Runs a command with this process's environment, and returns its exit status and output. Blocks
// for at most `deadline`. Ctrl-C also ends the command.
absl::StatusOr<ChildEnd> run_command(const std::vector<std::string>& words, Duration deadline);

// Returns the output of a command that exits with 0; otherwise an error with the command's message.
// Returns Aborted if SIGTERM ended the command: then the request itself may be valid.
absl::StatusOr<std::string> output_of(const std::vector<std::string>& words, Duration deadline);

}  // namespace muster::cli
