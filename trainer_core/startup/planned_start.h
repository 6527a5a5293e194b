// The start of a rank with a saved plan (compiled_trainstep_file).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include "trainer_core/base/saved_plan.h"
#include "trainer_core/base/train_config.h"
#include "trainer_core/ops/backend.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/rank/training_plan.h"

namespace muster::trainer {

// Returns the saved plan of the config's compiled_trainstep_file, after comparing it with the
// config; null if the config names none.
absl::StatusOr<std::unique_ptr<SavedPlan>> load_saved_plan(const TrainConfig& config);

// Compares the hardware of a rank, its device and its number of threads with the plan's.
absl::Status check_planned_backend(const SavedPlan& saved, const TrainConfig& config,
                                   const Backend& backend);

// Returns the threads of a rank on this machine, with this process's OMP_NUM_THREADS, if a node has
// all ranks of the config's node; 0 for ranks with devices.
int32_t planned_threads(const TrainConfig& config);

// Compares the rank's own plan with the saved one.
absl::Status check_rank_plan(const SavedPlan& saved, const TrainConfig& config,
                             const TrainingPlan& own, int32_t rank);

// Does the same for the rank and the saved plan of `context`; OK if there is none.
absl::Status check_rank_plan(const TrainConfig& config, const TrainContext& context,
                             const TrainingPlan& own);

// Returns the passes of a stage: "f0.0 f1.0 b0.0", a letter for forward and backward, the
// micro-batch, and the chunk. Without a pipeline: "f0.0 b0.0 x8" for 8 micro-batches.
std::string passes_text(const TrainConfig& config, int32_t stage);

// Return, and store, the lines of cuBLASLt's algorithms for `device` in the file that the job's
// ranks use (gpu_options()). A file that exists is not changed: it has the choices of the run that
// a restart must repeat. Errors are ignored, because the library can choose again.
std::vector<std::string> stored_algorithms(const TrainConfig& config, const std::string& device);
void store_algorithms(const TrainConfig& config, const SavedPlan& saved);

}  // namespace muster::trainer
