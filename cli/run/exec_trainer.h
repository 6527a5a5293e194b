// Replaces this process by muster-trainer, for commands that the trainer implements.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Returns the path of a new file in memory with this content. Only this process, and the program
// that it executes, can read the file.
absl::StatusOr<std::string> in_memory_file(const std::string& content);

// Executes the muster-trainer beside this program. Returns only on failure, with an error.
absl::Status exec_trainer(std::vector<std::string> arguments);

}  // namespace muster::cli
