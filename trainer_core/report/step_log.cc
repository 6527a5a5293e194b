#include "trainer_core/report/step_log.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

#include "common/text/absl_view.h"
#include "common/text/number_text.h"
#include "common/text/with_commas.h"
#include "trainer_core/base/units.h"
#include "trainer_core/parallel/pipeline_schedule.h"

namespace muster::trainer {
namespace {

// A sum of weights: whole unless samples have weights of their own.
std::string weights_text(double weights) {
  return weights == std::floor(weights) ? absl::StrFormat("%.0f", weights)
                                        : absl::StrFormat("%.6g", weights);
}

}  // namespace

StepProgress progress_of(const StepRecord& record) {
  return {.step = record.step + 1,
          .loss = record.loss,
          .grad_norm = record.raw_grad_norm,
          .seconds = record.seconds,
          .data_wait_seconds = record.data_wait_seconds,
          .collective_wait_seconds = record.collective_wait_seconds,
          .tokens = static_cast<uint64_t>(std::llround(record.tokens_per_device)),
          .tflops_per_device = record.tflops_per_device / record.seconds,
          .learning_rate = record.learning_rate};
}

PreferenceSums& PreferenceSums::operator+=(const PreferenceSums& other) {
  pairs += other.pairs;
  loss += other.loss;
  chosen_reward += other.chosen_reward;
  rejected_reward += other.rejected_reward;
  accurate += other.accurate;
  chosen_logps += other.chosen_logps;
  rejected_logps += other.rejected_logps;
  return *this;
}

std::vector<std::pair<std::string, double>> preference_figures(const PreferenceSums& sums) {
  const double pairs = std::max(sums.pairs, 1.0);
  return {{"rewards/chosen", sums.chosen_reward / pairs},
          {"rewards/rejected", sums.rejected_reward / pairs},
          {"rewards/accuracies", sums.accurate / pairs},
          {"rewards/margins", (sums.chosen_reward - sums.rejected_reward) / pairs},
          {"logps/chosen", sums.chosen_logps / pairs},
          {"logps/rejected", sums.rejected_logps / pairs}};
}

namespace {

// Returns "\npreferences after step: 49, rewards/chosen=0.012, …", a line of its own, because
// programs parse the line before it to its end.
std::string preference_line(const std::optional<PreferenceSums>& sums, const char* what,
                            int64_t step) {
  if (!sums) return "";
  std::string line = absl::StrFormat("\n%s after step: %d", what, step);
  for (const auto& [name, value] : preference_figures(*sums))
    absl::StrAppendFormat(&line, ", %s=%.4f", name, value);
  return line;
}

}  // namespace

std::string step_line(const StepRecord& record) {
  return absl::StrFormat(
             "completed step: %d, seconds: %s, TFLOP/s/device: %s, Tokens/s/device: %.3f, "
             "total_weights: %s, loss: %.3f",
             record.step, fixed_text(record.seconds, 3),
             fixed_text(record.tflops_per_device / record.seconds, 3),
             record.tokens_per_device / record.seconds, weights_text(record.total_weights),
             record.loss) +
         preference_line(record.preferences, "preferences", record.step);
}

std::string eval_line(const EvalRecord& record) {
  return absl::StrFormat("eval metrics after step: %d, loss=%.3f, total_weights=%s", record.step,
                         record.loss, weights_text(record.total_weights)) +
         preference_line(record.preferences, "eval preferences", record.step);
}

std::string eval_summary_line(const EvalRecord& record, uint64_t batches) {
  return absl::StrFormat("summary: loss %.4f, perplexity %.4g of %s tokens in %s batch%s",
                         record.loss, std::exp(record.loss),
                         with_commas(std::llround(record.total_weights)),
                         with_commas(static_cast<int64_t>(batches)), batches == 1 ? "" : "es");
}

std::string eval_tasks_line(const EvalRecord& record) {
  std::string line = absl::StrFormat("eval tasks after step: %d", record.step);
  for (const TaskResult& result : record.tasks) {
    for (const TaskMetric& metric : result.metrics)
      absl::StrAppendFormat(&line, ", %s/%s=%.4f", result.task, metric.name, metric.value);
  }
  return line + "\n";
}

std::string results_json(const EvalRecord& record, const std::string& run_name) {
  nlohmann::ordered_json results = {{"step", record.step}, {"run_name", run_name}};
  if (record.has_loss) results["loss"] = record.loss;
  if (record.preferences)
    for (const auto& [name, value] : preference_figures(*record.preferences)) results[name] = value;
  results["results"] = nlohmann::ordered_json::object();
  for (const TaskResult& result : record.tasks) results["results"][result.task] = json_of(result);
  return results.dump(2) + "\n";
}

std::string target_reached_line(double target) {
  return absl::StrFormat("Early stop and exit loop after reaching target_eval_loss=%g", target);
}

void DataWait::add(const StepRecord& record) {
  if (steps_++ == 0) {
    first_ = record;
    return;
  }
  seconds_ += record.seconds;
  waited_ += record.data_wait_seconds;
  longest_ = std::max(longest_, record.data_wait_seconds);
}

std::string DataWait::line() const {
  const bool alone = steps_ == 1;
  const double seconds = alone ? first_.seconds : seconds_;
  const double waited = alone ? first_.data_wait_seconds : waited_;
  return absl::StrFormat("data wait: %s of %s seconds in %s (%s%%), at most %s in one",
                         fixed_text(waited, 3), fixed_text(seconds, 3),
                         counted(alone ? 1 : static_cast<uint64_t>(steps_ - 1), "step"),
                         fixed_text(seconds > 0 ? 100 * waited / seconds : 0, 3),
                         fixed_text(alone ? waited : longest_, 3));
}

std::string parameters_line(int64_t parameters) {
  // MaxText's line, as far as it has three significant digits.
  constexpr double kBillion = 1e9, kBillionsMin = 0.1, kMillion = 1e6;
  const auto count = static_cast<double>(parameters);
  if (count >= kBillionsMin * kBillion)
    return absl::StrFormat("number parameters: %.3f billion", count / kBillion);
  if (count >= kMillion)
    return absl::StrFormat("number parameters: %.3g million", count / kMillion);
  return absl::StrCat("number parameters: ", with_commas(parameters));
}

std::string trained_line(int64_t trained, int64_t parameters) {
  if (trained == parameters) return "";
  constexpr double kPercent = 100;
  return absl::StrFormat("trained: adapters of %s parameters (%.2f%%); all others are frozen\n",
                         with_commas(trained),
                         kPercent * static_cast<double>(trained) / static_cast<double>(parameters));
}

std::string per_step_block(const StepTflops& tflops) {
  return absl::StrFormat(
      "Per train step:\n Total TFLOPs: %s \n split as %.2f%% learnable weight flops and %.2f%% "
      "attention flops",
      fixed_text(tflops.total(), 2), 100 * tflops.learnable / tflops.total(),
      100 * tflops.attention / tflops.total());
}

std::string pipeline_line(const TrainConfig& config) {
  const PipelineShape shape = pipeline_shape(config);
  if (shape.stages == 1) return "";
  const auto count = [](int32_t number, const char* noun) {
    return counted(static_cast<uint64_t>(number), noun);
  };
  return absl::StrFormat(
      "\npipeline: %d stages of %s, %s, %s of %s, bubble %.1f%%", shape.stages,
      count(config.model.num_layers / shape.stages, "layer"), count(shape.chunks, "repeat"),
      shape.micro_batches == 1 ? "1 micro-batch"
                               : absl::StrCat(shape.micro_batches, " micro-batches"),
      count(config.micro_batch_sequences(), "sequence"), 100 * pipeline_bubble(shape));
}

std::string memory_line(const MemoryPlan& plan) {
  std::vector<std::string> shares;
  for (size_t i = 0; i < kMemoryCategoryNames.size(); ++i) {
    const size_t bytes = plan.category_bytes(static_cast<MemoryCategory>(i));
    if (bytes == 0) continue;
    shares.push_back(
        absl::StrFormat("%s %.1f", av(kMemoryCategoryNames[i]), static_cast<double>(bytes) / kMiB));
  }
  return absl::StrFormat("memory: %.1f MiB (%s)", static_cast<double>(plan.total_bytes()) / kMiB,
                         absl::StrJoin(shares, ", "));
}

namespace {

nlohmann::ordered_json json_of(const StepRecord& record) {
  nlohmann::ordered_json line = {
      {"learning/loss", record.loss},
      {"learning/perplexity", std::exp(record.loss)},
      {"learning/grad_norm", record.grad_norm},
      {"learning/raw_grad_norm", record.raw_grad_norm},
      {"learning/param_norm", record.param_norm},
      {"learning/current_learning_rate", record.learning_rate},
      {"learning/total_weights", record.total_weights},
      {"learning/skipped_batches", record.skipped_batches},
      {"perf/step_time_seconds", record.seconds},
      {"perf/checkpoint_stall_seconds", record.checkpoint_stall_seconds},
      {"perf/data_wait_seconds", record.data_wait_seconds},
      {"perf/per_device_tflops", record.tflops_per_device},
      {"perf/per_device_tflops_per_sec", record.tflops_per_device / record.seconds},
      {"perf/per_device_tflops_causal", record.tflops_causal_per_device},
      {"perf/per_device_tflops_causal_per_sec", record.tflops_causal_per_device / record.seconds},
      {"perf/per_device_tokens", record.tokens_per_device},
      {"perf/per_device_tokens_per_sec", record.tokens_per_device / record.seconds},
  };
  if (const Throughput& all = record.throughput; all.seconds > 0) {
    line["perf/tokens_per_sec"] = all.tokens_per_second;
    line["perf/sequences_per_sec"] = all.sequences_per_second;
    line["perf/days_to_1t_tokens"] = all.days_to_1t_tokens;
    line["perf/estimated_run_seconds"] = record.estimated_run_seconds;
    if (all.mfu.data_sheet > 0) {
      line["perf/mfu"] = all.mfu.data_sheet;
      line["perf/mfu_causal"] = all.mfu.data_sheet_causal;
    }
    if (all.mfu.measured > 0) {
      line["perf/mfu_of_measured_peak"] = all.mfu.measured;
      line["perf/mfu_of_measured_peak_causal"] = all.mfu.measured_causal;
    }
  }
  if (record.experts) {
    line["learning/moe_lb_loss"] = record.experts->balance_loss;
    line["learning/moe_dropped_fraction"] = record.experts->dropped_fraction;
  }
  if (record.preferences) {
    line.erase("learning/perplexity");  // the loss of pairs is no cross-entropy
    for (const auto& [name, value] : preference_figures(*record.preferences)) line[name] = value;
  }
  if (record.comm) {
    line["perf/comm_seconds"] = record.comm->seconds;
    line["perf/comm_hidden_fraction"] = record.comm->hidden_fraction;
  }
  if (record.pipeline) {
    line["perf/pipeline_bubble_fraction"] = record.pipeline->bubble_fraction;
    line["perf/pipeline_wait_seconds"] = record.pipeline->wait_seconds;
  }
  return line;
}

nlohmann::ordered_json json_of(const EvalRecord& record) {
  nlohmann::ordered_json line;
  if (record.has_loss) {
    line["eval/avg_loss"] = record.loss;
    if (!record.preferences) line["eval/avg_perplexity"] = std::exp(record.loss);
    line["eval/total_loss"] = record.loss * record.total_weights;
    line["eval/total_weights"] = record.total_weights;
  }
  if (record.preferences)
    for (const auto& [name, value] : preference_figures(*record.preferences))
      line["eval/" + name] = value;
  for (const TaskResult& result : record.tasks) {
    for (const TaskMetric& metric : result.metrics) {
      const std::string name = absl::StrCat("eval/", result.task, "/", metric.name);
      line[name] = metric.value;
      if (metric.standard_error) line[name + "_stderr"] = *metric.standard_error;
    }
  }
  return line;
}

template <class Record>
std::string line_of(const Record& record, const std::string& run_name) {
  nlohmann::ordered_json line = json_of(record);
  line["step"] = record.step;
  line["run_name"] = run_name;
  return line.dump();
}

template <class Record>
std::vector<std::pair<std::string, double>> numbers_of(const Record& record) {
  std::vector<std::pair<std::string, double>> figures;
  const nlohmann::ordered_json line = json_of(record);
  for (const auto& [name, value] : line.items())
    figures.emplace_back(name, value.template get<double>());
  return figures;
}

}  // namespace

std::string metrics_line(const StepRecord& record, const std::string& run_name) {
  return line_of(record, run_name);
}

std::string metrics_line(const EvalRecord& record, const std::string& run_name) {
  return line_of(record, run_name);
}

std::vector<std::pair<std::string, double>> scalars_of(const StepRecord& record) {
  return numbers_of(record);
}

std::vector<std::pair<std::string, double>> scalars_of(const EvalRecord& record) {
  return numbers_of(record);
}

}  // namespace muster::trainer
