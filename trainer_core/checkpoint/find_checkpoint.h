// Finds the checkpoint at a path that the user has stated.
#pragma once

#include <string>

#include <absl/status/statusor.h>

#include "common/objects/object_cache.h"
#include "trainer_core/base/train_config.h"

namespace muster::trainer {

// The verification of a checkpoint: sizes of files only, or also checksums. kSizes is sufficient
// for callers that compare checksums when they read.
enum class Verify { kSizes, kChecksums };
// Returns the folder of a checkpoint: `path` itself if it is one; otherwise the newest complete
// checkpoint in `path` or, if `path` is the output folder of a run, in its subfolder "checkpoints".
// For such a path and "/best", returns the checkpoint of the best evaluation there. Fetches a
// checkpoint of an object store first, and returns the folder of the copy. Returns NotFound if
// there is none, and DataLoss if it is damaged.
absl::StatusOr<std::string> find_checkpoint(const std::string& path,
                                            Verify verify = Verify::kChecksums);

// Returns the config of the training that saved the checkpoint at `path`, which is not verified.
// Returns the errors of find_checkpoint().
absl::StatusOr<TrainConfig> training_of_checkpoint(const std::string& path);

// Returns the local copy of the checkpoint, or of other parameters, at an address of an object
// store. If the address is a run's output folder or its checkpoints, fetches the newest complete
// checkpoint. Returns the errors of fetch_to_cache().
absl::StatusOr<std::string> fetch_checkpoint(const std::string& url,
                                             const FetchEvents& events = {});

// Returns the output folder of the run to which the checkpoint at the same `path` belongs.
std::string run_folder_of(const std::string& path);

}  // namespace muster::trainer
