// Evaluates the loss on evaluation data, and the tasks of eval_tasks, every eval_interval steps or
// at the end of the training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/checkpoint/eval_progress.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/loop/task_evaluation.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/metrics_log.h"

namespace muster::trainer {

// The evaluations of a rank. Called on the thread of the training loop only.
class Evaluation {
 public:
  // Takes the sequences of data.eval, and adds the tasks to data.fingerprint. On rank 0, creates
  // eval_output. `config` and `context` must outlive this object. Returns null if the config has no
  // evaluation, the errors of load_eval_tasks(), and an error if eval_output cannot be written.
  static absl::StatusOr<std::unique_ptr<Evaluation>> open(const TrainConfig& config,
                                                          const TrainContext& context,
                                                          TrainingData& data);

  // Returns whether an evaluation is due after `completed_steps` steps. `is_last`: no step follows.
  bool is_due(int64_t completed_steps, bool is_last) const;
  // Evaluates the model: runs forward passes over this rank's part of the evaluation data and of
  // the tasks, from their beginnings, and reduces the results over all ranks. `step` is the last
  // completed step. Overwrites the activations; parameters and gradients do not change. Returns the
  // errors of the groups, and data_verdict() if it is an error.
  absl::StatusOr<EvalRecord> run(RankModel& rank_model, int64_t step);
  // Returns an error if a rank could not read its data in the last run() (data_fault.h).
  const absl::Status& data_verdict() const { return data_verdict_; }
  // Records the result of the last run(). Called once after each run().
  void count(const EvalRecord& record);
  // Returns whether the training ends: the loss of the newest evaluation is at most
  // target_eval_loss, or metric_for_best_model has not improved for early_stopping_patience
  // evaluations.
  bool ends_training() const { return target_reached_ || is_out_of_patience(); }
  // The newest evaluation and, if the config tracks it, the best one, for checkpoints.
  const EvalProgress& progress() const { return progress_; }
  // Continues from the progress of a restored checkpoint, which rank 0 has; all ranks call it.
  // Progress of another metric does not count. Returns the errors of the group.
  absl::Status resume(const EvalProgress& restored);
  // Returns whether the evaluation that is due after `completed_steps` steps of a training was not
  // made, for example because the checkpoint of these steps was saved before it.
  bool is_missing(int64_t completed_steps, bool is_last) const {
    return config_.steps > 0 && completed_steps > 0 && is_due(completed_steps, is_last) &&
           completed_steps > progress_.evaluated_step;
  }
  // Writes the result to the log, the progress page, the metrics and eval_output. If files of
  // eval_output cannot be written: a training continues after a warning; without training, returns
  // the error.
  absl::Status publish(const EvalRecord& record, MetricsLog& metrics) const;

 private:
  Evaluation(const TrainConfig& config, const TrainContext& context)
      : config_(config), context_(context) {}
  bool tracks_best() const { return config_.steps > 0 && config_.eval.tracks_best(); }
  bool is_out_of_patience() const {
    const int64_t patience = config_.eval.early_stopping_patience;
    return tracks_best() && patience > 0 && progress_.evaluations_since_best >= patience;
  }
  absl::Status evaluate_loss(RankModel& rank_model, EvalRecord& record);
  absl::Status evaluate_preferences(RankModel& rank_model, EvalRecord& record);
  std::string best_line() const;
  absl::Status prepare_output() const;
  absl::Status write_results(const EvalRecord& record) const;

  const TrainConfig& config_;
  const TrainContext& context_;
  std::unique_ptr<StepData> data_;  // null: no data for the loss
  std::vector<std::unique_ptr<TaskEvaluation>> tasks_;
  absl::Status data_verdict_;
  int64_t pairs_max_ = 0;        // TrainingData::pairs_max
  bool target_reached_ = false;  // the loss of the newest evaluation is at most target_eval_loss
  EvalProgress progress_;
};

}  // namespace muster::trainer
