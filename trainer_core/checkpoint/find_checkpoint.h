// Resolves a user's path to a checkpoint.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "common/object_cache.h"

namespace muster::trainer {

// Returns the step's folder: `path` itself if it holds a checkpoint; otherwise the newest complete
// one in it, or in its subfolder "checkpoints", which a run's output folder has. kSizes suits
// callers that compare checksums when they read. NotFound if there is none; DataLoss if it is
// damaged. A checkpoint in an object store is fetched first: the local copy's folder is returned.
enum class Verify { kSizes, kChecksums };
absl::StatusOr<std::string> find_checkpoint(const std::string& path,
                                            Verify verify = Verify::kChecksums);

// Returns the local copy of the checkpoint, or other parameters, at an address of an object store:
// of a run's folder or its checkpoints the newest complete one. Errors as of fetch_to_cache.
absl::StatusOr<std::string> fetch_checkpoint(const std::string& url,
                                             const FetchEvents& events = {});

// Returns the output folder of the run that a checkpoint belongs to, from the same path.
std::string run_folder_of(const std::string& path);

}  // namespace muster::trainer
