// Runs a program of Slurm's and takes what it says: scontrol, sbatch.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "common/run_child.h"
#include "common/time.h"

namespace muster::cli {

// run_child() with what we have: Ctrl-C ends it, too.
absl::StatusOr<ChildEnd> run_command(const std::vector<std::string>& words, Duration deadline);

// Its output, where it ends with 0; otherwise an error that has its words: Aborted where SIGTERM has ended it, which then was not about it.
absl::StatusOr<std::string> output_of(const std::vector<std::string>& words, Duration deadline);

}  // namespace muster::cli
