// The JSON lines of evaluation files, as the texts of which a task scores the tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

#include "trainer_core/base/eval_task_files.h"

namespace muster::trainer {

// How the texts of a task are scored: a continuation of a context, several of them of which one is
// right, or a complete text.
enum class TaskForm : uint8_t { kContinuation, kChoice, kRolling };

// A line of a file.
struct TaskLine {
  TaskForm form = TaskForm::kContinuation;
  std::string context;                     // kRolling: the text
  std::vector<std::string> continuations;  // kContinuation: one; kChoice: the choices
  int64_t gold = 0;                        // kChoice: the right one, from 0
};

// Returns the form of a task of kEvalTaskNames.
TaskForm task_form(std::string_view task);

// Calls `visit` with each line of the file and its number, from 1. Blank lines are skipped. Returns
// the first error of `visit`, with file and line, and the errors of EvalTask::load().
absl::Status for_each_task_line(
    const EvalTaskFile& file,
    absl::FunctionRef<absl::Status(size_t number, const TaskLine& line)> visit);

// Returns the number of words that white space separates, as len(re.split(r"\s+", text)) in
// Python.
size_t word_count(std::string_view text);
// Returns the number of characters of a choice without the blank that separates it from its
// context; at least 1.
size_t characters_of_choice(std::string_view choice);

}  // namespace muster::trainer
