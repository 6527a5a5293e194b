#include "trainer_core/base/tuning_rules.h"

#include <string>

#include <absl/strings/str_cat.h>

#include "trainer_core/base/eval_task_files.h"

namespace muster::trainer {
namespace {

absl::Status check_best_evaluation(const TrainConfig& config) {
  const EvalConfig& eval = config.eval;
  if (eval.early_stopping_patience < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("early_stopping_patience is ", eval.early_stopping_patience,
                     ", but must be at least 1, or 0 (no early stopping)"));
  }
  if (!eval.tracks_best() || config.steps == 0) return absl::OkStatus();
  const std::string key = eval.keep_best_checkpoint ? "keep_best_checkpoint=True"
                                                    : absl::StrCat("early_stopping_patience=",
                                                                   eval.early_stopping_patience);
  if (!eval.enabled()) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " needs evaluations; set eval_interval to a number of steps"));
  }
  if (eval.keep_best_checkpoint && !config.enable_checkpointing) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " needs checkpoints, but enable_checkpointing is False"));
  }
  const absl::Status metric = check_eval_metric(eval.best_metric, eval.tasks, eval.has_data());
  if (metric.ok()) return metric;
  return absl::InvalidArgumentError(absl::StrCat(key, ": ", metric.message()));
}

}  // namespace

absl::Status validate_tuning(const TrainConfig& config) { return check_best_evaluation(config); }

}  // namespace muster::trainer
