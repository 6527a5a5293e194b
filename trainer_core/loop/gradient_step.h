// A step up to its update: the gradients of its micro-batches, reduced over the ranks, and the
// step's figures.
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

// Called on the training loop's thread only. All references outlive it.
class GradientStep {
 public:
  GradientStep(const TrainConfig& config, const TrainContext& context, RankModel& rank_model,
               StepData& data);

  // Runs the passes of the step whose first sample is `position`. Group errors are returned by
  // reduce().
  LossSum compute(uint64_t position);
  // Leaves the step's gradients in the model's gradient block and reduces the step's figures: one
  // small collective, and a second one for the scales of quantized GEMMs. Errors are the groups'.
  absl::StatusOr<StepTail> reduce(const LossSum& local, bool saving);
  // Whether all ranks could read the step's data (data_fault.h). If not, the other reduced values
  // are undefined.
  absl::Status data_verdict(const StepTail& reduced) const { return data_fault_.verdict(reduced); }
  // Returns the record of the reduced sums. The caller adds times and the figures of the update.
  StepRecord record(int64_t step, const StepTail& reduced) const;
  // How long the computation has waited for peers since the step began: in its passes, its
  // reductions and its update.
  double collective_wait_seconds() const;
  // Returns the norm of all parameters after the update. A collective if ranks share parameters;
  // its errors are the group's.
  absl::StatusOr<double> parameter_norm();

  // The divisor of mean losses and gradients. A batch of one-token documents has no targets: its
  // sums are 0, and so are its means.
  static double divisor(const StepTail& reduced) { return reduced.weight > 0 ? reduced.weight : 1; }

 private:
  // The communication of passes since construction: overlapped and waited for.
  CommTimes comm_times() const;
  // Returns `sum` on one of the ranks that hold the same shards, 0 on the others, so that a
  // reduction counts it once.
  double count_once(double sum) const;

  const TrainConfig& config_;
  const TrainContext& context_;
  RankModel& rank_model_;
  StepData& data_;
  StepPasses passes_;
  StepTflops tflops_;
  // These belong to the step that was computed last:
  DataFault data_fault_;
  Duration data_wait_{};
  CommTimes comm_before_;     // when its passes began
  CommTimes comm_;            // of its passes
  Duration waited_before_{};  // for other stages, when its passes began
  double squares_ = 0;        // of all gradients
};

}  // namespace muster::trainer
