#include "trainer_core/startup/load_eval_tasks.h"

#include <utility>

#include <absl/strings/str_cat.h>

#include "trainer_core/data/text_start.h"
#include "trainer_core/startup/load_tokenizer.h"

namespace muster::trainer {

absl::StatusOr<std::vector<EvalTask>> load_eval_tasks(const TrainConfig& config) {
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
    const auto start = expected_text_start(config, **tokenizer);
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
