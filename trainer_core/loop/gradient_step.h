// The part of a step before the update: computes the gradients of its micro-batches, reduces them
// over the ranks, and computes the figures of the step.
#pragma once

#include <cstdint>
#include <optional>

#include <absl/status/statusor.h>

#include "common/time/time.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/loop/preference_passes.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/step_tail.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/recovery/data_fault.h"
#include "trainer_core/report/flops.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// Computes the steps of a rank, one after the other. Called on the thread of the training loop
// only. All references must outlive this object.
class GradientStep {
 public:
  // `pairs_max`: TrainingData::pairs_max.
  GradientStep(const TrainConfig& config, const TrainContext& context, RankModel& rank_model,
               StepData& data, int64_t pairs_max);

  // Runs the passes of the step whose first sample is `position`, and returns this rank's part of
  // the losses. reduce() returns the errors of the groups.
  LossSum compute(uint64_t position);
  // Completes the gradients in the model's gradient block and reduces the values of the step over
  // all ranks, in one small collective and, with delayed scaling, a second one for magnitudes.
  // `saving` states that this rank is saving in the background. Returns the errors of the groups.
  absl::StatusOr<StepTail> reduce(const LossSum& local, bool saving);
  // Returns an error if a rank could not read the data of the step (data_fault.h); the other
  // reduced values are then undefined.
  absl::Status data_verdict(const StepTail& reduced) const { return data_fault_.verdict(reduced); }
  // Returns the record of the step, before which the optimizer has made `updates` updates. The
  // caller adds the times and the norm of the parameters.
  StepRecord record(int64_t step, int64_t updates, const StepTail& reduced) const;
  // Returns the gradient norm after clipping, from the reduced sums. All ranks have the same value,
  // while that of the record may differ in its last bit between types of CPUs.
  double common_grad_norm(const StepTail& reduced) const;
  // Returns the time for which the computation has waited for peers since the step began: in its
  // passes, its reductions and its update.
  double collective_wait_seconds() const;
  // Returns the norm of all parameters after the update. If ranks share parameters, this is a
  // collective: all ranks must call it, and it returns the errors of the group.
  absl::StatusOr<double> parameter_norm();

  // Returns the divisor of mean losses and gradients: the total weight of targets. It is 1 if there
  // are no targets, as in a batch of documents of one token; sums and means are then 0.
  static double divisor(const StepTail& reduced) { return reduced.weight > 0 ? reduced.weight : 1; }

 private:
  // Scores the pairs of a step before its passes. Returns their loss.
  LossSum compute_preferences(const StepPasses::Load& load);
  // Returns the times of the communication of passes since construction.
  CommTimes comm_times() const;
  // Returns `sum` on one of the ranks with the same shards and 0 on the others, so that a reduction
  // counts it once.
  double count_once(double sum) const;
  double clipped(double norm) const;

  const TrainConfig& config_;
  const TrainContext& context_;
  RankModel& rank_model_;
  StepData& data_;
  StepPasses passes_;
  std::optional<PreferencePasses> preferences_;  // nullopt: no use_dpo
  StepTflops tflops_;
  // The members below are those of the current step.
  DataFault data_fault_;
  absl::Status score_status_;       // the result of the scoring passes
  PreferenceSums preference_sums_;  // this rank's; after reduce() those of all ranks
  Duration data_wait_{};
  CommTimes comm_before_;     // times of communication when its passes began
  CommTimes comm_;            // times of communication during its passes
  Duration waited_before_{};  // time waited for other stages when its passes began
  double squares_ = 0;        // sum of the squares of all gradients
};

}  // namespace muster::trainer
