// Loads the evaluation tasks of a config.
#pragma once

#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/evaluation/eval_task.h"

namespace muster::trainer {

// Loads the tasks of eval_tasks; none if the config has no evaluation. Returns the errors of
// load_tokenizer(), expected_text_start() and EvalTask::load(), and InvalidArgument if the
// tokenizer has no token for eval_bos_id=-1.
absl::StatusOr<std::vector<EvalTask>> load_eval_tasks(const TrainConfig& config);

}  // namespace muster::trainer
