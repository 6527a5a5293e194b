// Executes muster-trainer in place of this process, for commands that the trainer implements.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Returns the path of a file that only this process, and the program it executes, can read.
absl::StatusOr<std::string> in_memory_file(const std::string& content);

// Executes the muster-trainer beside this program. Returns only on failure.
absl::Status exec_trainer(std::vector<std::string> arguments);

}  // namespace muster::cli
