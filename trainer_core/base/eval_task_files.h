// The value of eval_tasks: which tasks an evaluation runs, and their files.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include <absl/status/statusor.h>

namespace muster::trainer {

// The names of the tasks. evaluation/eval_task.cc defines what each of them does.
constexpr std::array<std::string_view, 5> kEvalTaskNames = {"lambada", "boolq", "choice",
                                                            "loglikelihood", "perplexity"};

// A task and its file of JSON lines.
struct EvalTaskFile {
  std::string task;
  std::string file;

  friend bool operator==(const EvalTaskFile&, const EvalTaskFile&) = default;
};

// Parses "lambada=/data/test.jsonl,boolq=/data/dev.jsonl"; "" has no task. Returns InvalidArgument
// for an unknown task, with the nearest one, for a part without a file, for a path with a comma,
// and for a task that is given twice.
absl::StatusOr<std::vector<EvalTaskFile>> parse_eval_tasks(std::string_view text);
// A metric of evaluations.
struct EvalMetric {
  std::string_view name;  // "loss", or a task and its metric, as "lambada/acc"
  bool higher_is_better = true;

  // Returns the name of the task; "" for the loss, "rewards" for those of preference tuning.
  std::string_view task() const { return name.substr(0, name == "loss" ? 0 : name.find('/')); }
};
// Returns the metric of this name. Returns InvalidArgument with the nearest one if there is none.
absl::StatusOr<EvalMetric> find_eval_metric(std::string_view name);
// Checks that evaluations of `eval_tasks` have the metric. `has_loss` and `has_preferences`: they
// have a loss, and the pairs of preference tuning.
absl::Status check_eval_metric(std::string_view name, std::string_view eval_tasks, bool has_loss,
                               bool has_preferences);

// The inverse of parse_eval_tasks().
std::string eval_tasks_text(const std::vector<EvalTaskFile>& tasks);

}  // namespace muster::trainer
