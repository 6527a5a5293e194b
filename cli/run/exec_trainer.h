// Replaces this process by muster-trainer, for commands that the trainer implements.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// Returns the path of a new file in memory with this content. It exists as long as this process,
// whose children can read it, and which may execute another program.
absl::StatusOr<std::string> in_memory_file(const std::string& content);

// Executes the muster-trainer beside this program. Returns only on failure, with an error.
absl::Status exec_trainer(std::vector<std::string> arguments);

}  // namespace muster::cli
