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
// The inverse of parse_eval_tasks().
std::string eval_tasks_text(const std::vector<EvalTaskFile>& tasks);

}  // namespace muster::trainer
