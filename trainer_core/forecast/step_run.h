// The calls of one training step, without the data, logs and checkpoints of the training loop. The
// forecast records them (step_recorder.h), and the measurement of a device times them
// (device_bench.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <absl/status/status.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/comm/process_groups.h"
#include "trainer_core/rank/rank_model.h"

namespace muster::trainer {

struct StepRunOptions {
  // The tokens of a micro-batch, which are also its targets. Its size is that of the model's plan.
  std::vector<int32_t> tokens;
  // Called before each pass, and after the last one. May be empty.
  std::function<void()> begin_pass = nullptr, begin_tail = nullptr;
};

// Calls what a step of the training loop calls (loop/gradient_step.h, loop/train.cc), with every
// micro-batch equal. Returns the errors of the groups.
absl::Status run_step(const TrainConfig& config, RankModel& rank_model, ProcessGroups& groups,
                      const StepRunOptions& options);

}  // namespace muster::trainer
