#include "trainer_core/evaluation/task_result.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/text/with_commas.h"

namespace muster::trainer {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson number_or_null(double value) {
  return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr);
}

// Perplexities of untrained models may be huge.
std::string value_text(double value) {
  constexpr double kFixedMax = 1e6;
  return std::abs(value) < kFixedMax ? absl::StrFormat("%.4f", value)
                                     : absl::StrFormat("%.4g", value);
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

OrderedJson json_of(const TaskResult& result) {
  OrderedJson json;
  for (const TaskMetric& metric : result.metrics) {
    json[metric.name] = number_or_null(metric.value);
    json[metric.name + "_stderr"] =
        metric.standard_error ? number_or_null(*metric.standard_error) : OrderedJson(nullptr);
  }
  json["samples"] = result.samples;
  json["tokens"] = result.tokens;
  json["seconds"] = result.seconds;
  json["tokens_per_second"] = result.tokens_per_second();
  return json;
}

std::string table_of(const std::vector<TaskResult>& results) {
  std::string table = absl::StrFormat("%-14s %-16s %10s   %-10s %9s %11s\n", "task", "metric",
                                      "value", "stderr", "samples", "tokens/s");
  for (const TaskResult& result : results) {
    for (const TaskMetric& metric : result.metrics) {
      absl::StrAppendFormat(&table, "%-14s %-16s %10s ± %-10s %9s %11.0f\n", result.task,
                            metric.name, value_text(metric.value),
                            metric.standard_error ? value_text(*metric.standard_error) : "-",
                            with_commas(static_cast<int64_t>(result.samples)),
                            result.tokens_per_second());
    }
  }
  return table;
}

TaskMetric mean_metric(std::string name, const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  TaskMetric metric{std::move(name), sum_of(values) / count, std::nullopt};
  if (values.size() < 2) return metric;
  double squares = 0;
  for (const double value : values) squares += (value - metric.value) * (value - metric.value);
  metric.standard_error = std::sqrt(squares / (count - 1) / count);
  return metric;
}

TaskMetric perplexity_metric(std::string name, const std::vector<double>& values,
                             const std::vector<double>& weights) {
  const auto count = static_cast<double>(values.size());
  const double weight = sum_of(weights), mean = sum_of(values) / weight;
  TaskMetric metric{std::move(name), std::exp(-mean), std::nullopt};
  if (values.size() < 2) return metric;
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double residual = values[i] - mean * weights[i];
    squares += residual * residual;
  }
  metric.standard_error = metric.value * std::sqrt(count / (count - 1) * squares) / weight;
  return metric;
}

}  // namespace muster::trainer
