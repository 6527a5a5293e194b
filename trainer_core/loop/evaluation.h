// Evaluates the loss on held-out data every eval_interval steps.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/metrics_log.h"

namespace muster::trainer {

// Called on the training loop's thread only. Config and context outlive it.
class Evaluation {
 public:
  // Moves out of data.eval.
  Evaluation(const TrainConfig& config, const TrainContext& context, TrainingData& data);

  bool is_due(int64_t completed_steps) const;
  // Runs every rank's forward passes over its part of the data, from the beginning, and one
  // all-reduce. Overwrites the model's activations; parameters and gradients do not change. Errors
  // are the group's, and data_verdict().
  absl::StatusOr<EvalRecord> run(RankModel& rank_model, int64_t step);
  // Whether all ranks could read the data in the newest run (data_fault.h).
  const absl::Status& data_verdict() const { return data_verdict_; }
  // Whether the loss reaches target_eval_loss; false if there was no target to predict.
  bool reaches_target(const EvalRecord& record) const {
    return record.total_weights > 0 && record.loss <= config_.eval.target_loss;
  }
  // Writes the line, the progress page and the metrics.
  void publish(const EvalRecord& record, MetricsLog& metrics) const;

 private:
  const TrainConfig& config_;
  const TrainContext& context_;
  std::unique_ptr<StepData> data_;
  absl::Status data_verdict_;
};

}  // namespace muster::trainer
