// The loss on data that is not trained on, every eval_interval steps.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/metrics_log.h"

namespace muster::trainer {

// One thread, the training loop's. Config and context outlive it.
class Evaluation {
 public:
  // Takes data.eval.
  Evaluation(const TrainConfig& config, const TrainContext& context, TrainingData& data);

  bool is_due(int64_t completed_steps) const;
  // Every rank's forward passes over its part of the data, from its beginning, and one all-reduce. Overwrites the model's
  // activations; parameters and gradients stay. Errors are those of the group, and data_verdict().
  absl::StatusOr<EvalRecord> run(RankModel& rank_model, int64_t step);
  // Of the newest run: whether all ranks could read the data (data_fault.h).
  const absl::Status& data_verdict() const { return data_verdict_; }
  // Not by an evaluation that had nothing to predict.
  bool reaches_target(const EvalRecord& record) const {
    return record.total_weights > 0 && record.loss <= config_.eval.target_loss;
  }
  // Line, page and metrics.
  void publish(const EvalRecord& record, MetricsLog& metrics) const;

 private:
  const TrainConfig& config_;
  const TrainContext& context_;
  std::unique_ptr<StepData> data_;
  absl::Status data_verdict_;
};

}  // namespace muster::trainer
