// For commands whose work the trainer does: this process becomes muster-trainer.
#pragma once

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::cli {

// The path of a file that only this process, and the program that it becomes, can see.
absl::StatusOr<std::string> in_memory_file(const std::string& content);

// Executes the muster-trainer beside this program; returns only when it cannot.
absl::Status become_trainer(std::vector<std::string> arguments);

}  // namespace muster::cli
