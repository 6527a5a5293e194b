// Resolves a user's path to a checkpoint.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// Returns the step's folder: `path` itself if it holds a checkpoint; otherwise the newest complete
// one in it, or in its subfolder "checkpoints", which a run's output folder has. kSizes suits
// callers that compare checksums when they read. NotFound if there is none; DataLoss if it is
// damaged.
enum class Verify { kSizes, kChecksums };
absl::StatusOr<std::string> find_checkpoint(const std::string& path,
                                            Verify verify = Verify::kChecksums);

// Returns the output folder of the run that a checkpoint belongs to, from the same path.
std::string run_folder_of(const std::string& path);

}  // namespace muster::trainer
