// The result of an evaluation task.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace muster::trainer {

// A metric with its standard error; nullopt for fewer than two samples.
struct TaskMetric {
  std::string name;
  double value = 0;
  std::optional<double> standard_error;

  friend bool operator==(const TaskMetric&, const TaskMetric&) = default;
};

struct TaskResult {
  std::string task;
  std::vector<TaskMetric> metrics;
  uint64_t samples = 0;  // lines of the file
  uint64_t tokens = 0;   // tokens that the model has read, without padding
  double seconds = 0;

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
  friend bool operator==(const TaskResult&, const TaskResult&) = default;
};

// Returns {"acc": 0.5, "acc_stderr": 0.1, "samples": 20, "tokens": 700, "seconds": 0.1,
// "tokens_per_second": 7000}. Values that are not finite are null.
nlohmann::ordered_json json_of(const TaskResult& result);
// Returns a table with a line per metric.
std::string table_of(const std::vector<TaskResult>& results);

// Returns the mean and its standard error, sqrt(sample variance / n). Requires a value.
TaskMetric mean_metric(std::string name, const std::vector<double>& values);
// Returns exp(-sum(values) / sum(weights)), the perplexity of log-likelihoods, and its standard
// error by the delta method for a ratio. Requires a positive sum of weights.
TaskMetric perplexity_metric(std::string name, const std::vector<double>& values,
                             const std::vector<double>& weights);

}  // namespace muster::trainer
