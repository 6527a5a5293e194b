#include "trainer_core/startup/load_eval_tasks.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/checkpoint/find_checkpoint.h"
#include "trainer_core/comm/exact_floats.h"
#include "trainer_core/data/text_start.h"
#include "trainer_core/input/data_order.h"
#include "trainer_core/startup/load_tokenizer.h"
#include "trainer_core/startup/remote_inputs.h"

namespace muster::trainer {

namespace {

// Returns the training whose state an evaluation loads; no data if the state is of another format.
TrainConfig stored_training(const TrainConfig& config, const std::string& parameters) {
  for (const std::string& path : {config.lora_restore_path, parameters}) {
    if (path.empty()) continue;
    if (auto training = training_of_checkpoint(path); training.ok()) return *std::move(training);
  }
  TrainConfig training = config;
  if (!parameters.empty()) training.dataset_type = DatasetType::kSynthetic;
  return training;
}

}  // namespace

absl::StatusOr<TrainConfig> training_of_model(const TrainConfig& config,
                                              const TrainContext& context,
                                              const nlohmann::json& order) {
  TrainConfig training = config;
  training.sample_begin_id = sample_begin_id(order);
  if (config.steps > 0 || config.eval.tasks.empty()) return training;
  const auto inputs =
      with_local_parameters(config, context.err, [&] { enter_phase(context, Phase::kLoad); });
  if (!inputs.ok()) return inputs.status();
  if (context.groups.rank() == 0) training = stored_training(config, inputs->load_parameters_path);
  std::array<float, 1 + kFloatsPerU64> words{training.dataset_type == DatasetType::kShards ? 1.0F
                                                                                           : 0.0F};
  const auto id = std::span(words).subspan(1);
  std::ranges::copy(floats_of_u64(static_cast<uint64_t>(int64_t{training.sample_begin_id})),
                    id.begin());
  if (auto status = context.groups.world().broadcast(words, 0, "training"); !status.ok())
    return status;
  training.dataset_type = words[0] == 1 ? DatasetType::kShards : DatasetType::kSynthetic;
  training.sample_begin_id = static_cast<int32_t>(static_cast<int64_t>(u64_of_floats(id)));
  return training;
}

absl::StatusOr<std::vector<EvalTask>> load_eval_tasks(const TrainConfig& config,
                                                      const TrainConfig& training) {
  std::vector<EvalTask> tasks;
  if (config.eval.tasks.empty() || !config.eval.enabled()) return tasks;
  const auto files = parse_eval_tasks(config.eval.tasks);
  if (!files.ok()) return files.status();
  const auto tokenizer = load_tokenizer(config);
  if (!tokenizer.ok()) return tokenizer.status();
  ScoringOptions options{.seq_len = config.max_target_length,
                         .truncate = config.eval.truncate_contexts,
                         .bos_id = config.eval.bos_id,
                         .add_bos = config.eval.add_bos};
  if (options.bos_id < 0) {
    const auto start = expected_text_start(training, **tokenizer);
    if (!start.ok()) return start.status();
    options.bos_id = start->id;
    options.add_bos |= start->always;
  }
  if (options.bos_id < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer ", config.tokenizer_path,
                     " has neither a beginning- nor an end-of-sequence token; set eval_bos_id to "
                     "the token before each text"));
  }
  for (const EvalTaskFile& file : *files) {
    auto task = EvalTask::load(file, **tokenizer, options);
    if (!task.ok()) return task.status();
    tasks.push_back(*std::move(task));
  }
  return tasks;
}

}  // namespace muster::trainer
