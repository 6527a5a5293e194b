// Loads the evaluation tasks of a config.
#pragma once

#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"
#include "trainer_core/evaluation/eval_task.h"
#include "trainer_core/rank/train_context.h"

namespace muster::trainer {

// Returns the config of the training whose model `config` evaluates, as far as it decides how texts
// begin: `config` itself if it trains; otherwise the stored config of the checkpoint that it reads.
// Parameters of other formats have no training here. `order` is the data order of `config`. All
// ranks call it; rank 0 reads the checkpoint. Returns the errors of the group.
absl::StatusOr<TrainConfig> training_of_model(const TrainConfig& config,
                                              const TrainContext& context,
                                              const nlohmann::json& order);

// Loads the tasks of eval_tasks; none if the config has no evaluation. `training` is the config of
// the model's training. Returns the errors of load_tokenizer(), expected_text_start() and
// EvalTask::load(), and InvalidArgument if the tokenizer has no token for eval_bos_id=-1.
absl::StatusOr<std::vector<EvalTask>> load_eval_tasks(const TrainConfig& config,
                                                      const TrainConfig& training);

}  // namespace muster::trainer
