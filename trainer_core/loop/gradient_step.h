// A step up to its update: the gradients of its micro-batches, added up over the ranks, and what is said of them.
#pragma once

#include <cstdint>

#include <absl/status/statusor.h>

#include "common/time.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/step_tail.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/recovery/data_fault.h"
#include "trainer_core/report/flops.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// One thread, the training loop's. What it is given outlives it.
class GradientStep {
 public:
  GradientStep(const TrainConfig& config, const TrainContext& context, RankModel& rank_model,
               StepData& data);

  // Runs the passes of the step whose first sample is `position`. Errors of groups are reduce()'s to say.
  LossSum compute(uint64_t position);
  // Leaves the step's gradients in the replica's block, and adds up what is said of them: one small collective, and one for the
  // scales of quantized products where there are any. The groups' errors.
  absl::StatusOr<StepTail> reduce(const LossSum& local, bool saving);
  // Whether all ranks could read the step's data (data_fault.h). Without it the rest of what was reduced means nothing.
  absl::Status data_verdict(const StepTail& reduced) const { return data_fault_.verdict(reduced); }
  // What the reduced sums say. Time, update and parameters come later.
  StepRecord record(int64_t step, const StepTail& reduced) const;
  // What the computation has stood waiting for peers since the step began: in its passes, its reduced sums and its update.
  double collective_wait_seconds() const;
  // Of all parameters after the update: a collective where ranks share parameters, with the group's errors.
  absl::StatusOr<double> parameter_norm();

  // What mean losses and gradients are divided by. A batch of documents of one token each has nothing to predict: its sums are
  // 0, and so are its means.
  static double divisor(const StepTail& reduced) { return reduced.weight > 0 ? reduced.weight : 1; }

 private:
  // Of passes, since the beginning: what runs beside the computation, and what it waits for.
  CommTimes comm_times() const;
  // Of the numbers of this rank's shards, whatever other ranks have the same: 0 for all of them but one.
  double count_once(double sum) const;

  const TrainConfig& config_;
  const TrainContext& context_;
  RankModel& rank_model_;
  StepData& data_;
  StepPasses passes_;
  StepTflops tflops_;
  // Of the step that was computed last:
  DataFault data_fault_;
  Duration data_wait_{};
  CommTimes comm_before_;     // when its passes began
  CommTimes comm_;            // of them
  Duration waited_before_{};  // for other stages, when they began
  double squares_ = 0;        // of all gradients
};

}  // namespace muster::trainer
