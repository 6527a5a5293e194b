#include "trainer_core/base/eval_task_files.h"

#include <algorithm>
#include <iterator>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>

#include "common/text/absl_view.h"
#include "common/text/nearest.h"

namespace muster::trainer {
namespace {

std::string unknown_task(const std::string& name) {
  const std::string_view nearest = nearest_name(name, kEvalTaskNames);
  std::string names;
  for (const std::string_view known : kEvalTaskNames)
    absl::StrAppend(&names, names.empty() ? "" : ", ", av(known));
  return absl::StrCat("eval_tasks: there is no task \"", name, "\"",
                      nearest.empty() ? "" : absl::StrCat(" (did you mean ", av(nearest), "?)"),
                      "; there are ", names);
}

constexpr EvalMetric kMetrics[] = {{"loss", false},
                                   {"rewards/accuracies", true},
                                   {"rewards/margins", true},
                                   {"lambada/acc", true},
                                   {"lambada/perplexity", false},
                                   {"boolq/acc", true},
                                   {"boolq/acc_norm", true},
                                   {"choice/acc", true},
                                   {"choice/acc_norm", true},
                                   {"loglikelihood/acc", true},
                                   {"loglikelihood/perplexity", false},
                                   {"perplexity/perplexity", false},
                                   {"perplexity/word_perplexity", false},
                                   {"perplexity/byte_perplexity", false},
                                   {"perplexity/bits_per_byte", false}};

}  // namespace

absl::StatusOr<EvalMetric> find_eval_metric(std::string_view name) {
  const auto found = std::ranges::find(kMetrics, name, &EvalMetric::name);
  if (found != std::end(kMetrics)) return *found;
  std::vector<std::string_view> names;
  for (const EvalMetric& metric : kMetrics) names.push_back(metric.name);
  const std::string_view nearest = nearest_name(name, names);
  return absl::InvalidArgumentError(absl::StrCat(
      "metric_for_best_model: there is no metric \"", av(name), "\"",
      nearest.empty() ? "" : absl::StrCat(" (did you mean ", av(nearest), "?)"), "; there are ",
      absl::StrJoin(names, ", ", [](std::string* out, std::string_view metric) {
        absl::StrAppend(out, av(metric));
      })));
}

absl::Status check_eval_metric(std::string_view name, std::string_view eval_tasks, bool has_loss,
                               bool has_preferences) {
  const auto metric = find_eval_metric(name);
  if (!metric.ok()) return metric.status();
  const auto tasks = parse_eval_tasks(eval_tasks);
  if (!tasks.ok()) return tasks.status();
  const std::string_view task = metric->task();
  const bool has_task = std::ranges::count(*tasks, task, &EvalTaskFile::task) > 0;
  const bool is_reward = task == "rewards";
  if (is_reward && !has_preferences) {
    return absl::InvalidArgumentError(
        absl::StrCat("metric_for_best_model is ", av(name), ", which needs use_dpo=True"));
  }
  if (task.empty() || is_reward ? has_loss : has_task) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "metric_for_best_model is ", av(name), ", which is not evaluated; ",
      task.empty() || is_reward ? "set eval_dataset_path or eval_holdout_fraction"
                                : absl::StrCat("add ", av(task), "=FILE to eval_tasks")));
}

absl::StatusOr<std::vector<EvalTaskFile>> parse_eval_tasks(std::string_view text) {
  std::vector<EvalTaskFile> tasks;
  if (text.empty()) return tasks;
  for (const absl::string_view part : absl::StrSplit(av(text), ',')) {
    const size_t equals = part.find('=');
    const std::string name(part.substr(0, equals));
    if (std::ranges::count(kEvalTaskNames, name) == 0) {
      if (equals != absl::string_view::npos || tasks.empty())
        return absl::InvalidArgumentError(unknown_task(name));
      return absl::InvalidArgumentError(
          absl::StrCat("eval_tasks: the path ", tasks.back().file, ",", name, " of ",
                       tasks.back().task, " has a comma, which separates tasks; rename the file"));
    }
    if (equals == absl::string_view::npos || equals + 1 == part.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("eval_tasks: ", name, " has no file; give ", name, "=FILE"));
    }
    if (std::ranges::count(tasks, name, &EvalTaskFile::task) > 0)
      return absl::InvalidArgumentError(absl::StrCat("eval_tasks: ", name, " is given twice"));
    tasks.push_back({name, std::string(part.substr(equals + 1))});
  }
  return tasks;
}

std::string eval_tasks_text(const std::vector<EvalTaskFile>& tasks) {
  return absl::StrJoin(tasks, ",", [](std::string* out, const EvalTaskFile& task) {
    absl::StrAppend(out, task.task, "=", task.file);
  });
}

}  // namespace muster::trainer
