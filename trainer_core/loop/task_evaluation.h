// Evaluates the model on the tasks of eval_tasks, whose texts it scores by forward passes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/evaluation/eval_task.h"
#include "trainer_core/evaluation/scored_samples.h"
#include "trainer_core/input/step_data.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/train_context.h"

namespace muster::trainer {

// A task of a rank. Called on the thread of the training loop only.
class TaskEvaluation {
 public:
  // `config` and `context` must outlive this object.
  TaskEvaluation(const TrainConfig& config, const TrainContext& context, EvalTask task);

  // Scores all requests and reduces the scores over all ranks, which get the same result. On other
  // meshes and with other batches, it differs by the order of additions alone. Overwrites the
  // activations. Returns the errors of the groups.
  absl::StatusOr<TaskResult> run(RankModel& rank_model);
  // Returns the lines of the samples of the last run (EvalTask::sample_lines).
  std::string sample_lines() const { return task_.sample_lines(scores_); }

 private:
  absl::Status run_step(RankModel& rank_model, uint64_t first);
  absl::Status reduce_scores();
  void add_own_scores(RankModel& rank_model, uint64_t first, std::span<const TargetScore> own);

  const TrainContext& context_;
  EvalTask task_;
  std::shared_ptr<const ScoredLayout> layout_;
  std::unique_ptr<StepData> data_;
  // One per request. During a run: of the targets that this rank has scored.
  std::vector<TargetScore> scores_;
};

}  // namespace muster::trainer
