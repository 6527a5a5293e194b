// Which checkpoint of ours people mean by a path.
#pragma once

#include <string>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The step's folder: `path` itself when it holds a checkpoint; else the newest whole one in it, or in its folder
// "checkpoints", as a run's output folder has it. kSizes: for who compares checksums of what it reads. NotFound says that there is none; DataLoss that it is damaged.
enum class Verify { kSizes, kChecksums };
absl::StatusOr<std::string> find_checkpoint(const std::string& path,
                                            Verify verify = Verify::kChecksums);

// The folder in which `muster run` keeps everything of the run that a checkpoint is from, by the same path.
std::string run_folder_of(const std::string& path);

}  // namespace muster::trainer
