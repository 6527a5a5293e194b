// Compares a job with the saved plan that it is given. Each function returns InvalidArgument with
// the first difference and both values. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <absl/status/status.h>

#include "trainer_core/base/saved_plan.h"

namespace muster::trainer {

// Compares the config: the mesh, then the model, the batch, the precision, the memory policy, the
// optimizer and its schedule, then everything else. Data, seeds, outputs, checkpoints, evaluations,
// and the constants of the optimizer beside its learning rate are no part of a plan. `config` may
// have hardware=auto.
absl::Status check_planned_config(const SavedPlan& plan, const TrainConfig& config);

// Returns whether a job may have another value of this key of a TrainConfig than its plan.
bool is_free_of_plan(std::string_view key);

// Compares the device of a rank, as its driver reports it.
absl::Status check_planned_device(const SavedPlan& plan, std::string_view device);

// Compares the number of threads of a rank on CPUs.
absl::Status check_planned_threads(const SavedPlan& plan, int32_t threads);

// The part of the plan that a rank has computed itself.
struct OwnPlan {
  const MemoryPlan& memory;
  int32_t stage = 0;  // pipeline stage
  bool packed = false;
  // The rank is the one whose layout the file has, so sizes must be equal. Other ranks of the stage
  // may have smaller buffers, where a dimension does not divide evenly.
  bool is_largest = true;
  std::string schedule = {};  // passes_text()
};
absl::Status check_own_plan(const SavedPlan& plan, const OwnPlan& own);

}  // namespace muster::trainer
