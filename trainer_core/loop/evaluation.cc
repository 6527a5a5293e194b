#include "trainer_core/loop/evaluation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

#include "common/files/errno_status.h"
#include "common/files/file_write.h"
#include "common/objects/object_url.h"
#include "common/random/fnv.h"
#include "common/text/absl_view.h"
#include "common/text/number_text.h"
#include "trainer_core/base/eval_task_files.h"
#include "trainer_core/comm/exact_floats.h"
#include "trainer_core/loop/preference_passes.h"
#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/step_tail.h"
#include "trainer_core/recovery/data_fault.h"
#include "trainer_core/startup/load_eval_tasks.h"

namespace muster::trainer {
namespace {

uint64_t mix_fingerprints(uint64_t a, uint64_t b) { return fnv1a(absl::StrCat(a, "/", b)); }

// Returns the value of a metric; nullopt if the record has none.
std::optional<double> metric_of(const EvalRecord& record, const EvalMetric& metric) {
  if (metric.task().empty())
    return record.total_weights > 0 ? std::optional(record.loss) : std::nullopt;
  if (record.preferences) {
    for (const auto& [name, value] : preference_figures(*record.preferences))
      if (name == av(metric.name)) return value;
  }
  for (const TaskResult& result : record.tasks) {
    for (const TaskMetric& found : result.metrics) {
      if (absl::StrCat(result.task, "/", found.name) == av(metric.name)) return found.value;
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Evaluation>> Evaluation::open(const TrainConfig& config,
                                                             const TrainContext& context,
                                                             TrainingData& data) {
  if (!config.eval.enabled()) return nullptr;
  auto evaluation = absl::WrapUnique(new Evaluation(config, context));
  const auto training = training_of_model(config, context, data.order);
  if (!training.ok()) return training.status();
  auto tasks = load_eval_tasks(config, *training);
  if (!tasks.ok()) return tasks.status();
  for (EvalTask& task : *tasks) {
    data.fingerprint = mix_fingerprints(data.fingerprint, task.fingerprint());
    evaluation->tasks_.push_back(
        std::make_unique<TaskEvaluation>(config, context, std::move(task)));
  }
  if (auto status = evaluation->prepare_output(); !status.ok()) return status;
  evaluation->pairs_max_ = data.pairs_max;
  if (!data.eval.empty()) {
    evaluation->data_ = StepData::evaluation(config, context.groups.rank(), std::move(data.eval),
                                             config.eval.steps);
  }
  return evaluation;
}

bool Evaluation::is_due(int64_t completed_steps, bool is_last) const {
  const EvalConfig& eval = config_.eval;
  if (eval.at_end) return is_last;
  return completed_steps % eval.interval == 0 && completed_steps >= eval.start_step;
}

absl::StatusOr<EvalRecord> Evaluation::run(RankModel& rank_model, int64_t step) {
  EvalRecord record{.step = step, .has_loss = data_ != nullptr};
  data_verdict_ = absl::OkStatus();
  if (record.has_loss) {
    if (auto status = config_.dpo.enabled ? evaluate_preferences(rank_model, record)
                                          : evaluate_loss(rank_model, record);
        !status.ok())
      return status;
  }
  for (const auto& task : tasks_) {
    auto result = task->run(rank_model);
    if (!result.ok()) return result.status();
    record.tasks.push_back(*std::move(result));
  }
  return record;
}

// All ranks have the same record, so they decide alike.
void Evaluation::count(const EvalRecord& record) {
  const double target = config_.eval.target_loss;  // 0: none
  target_reached_ = target > 0 && record.total_weights > 0 && record.loss <= target;
  progress_.metric = config_.eval.best_metric;
  progress_.evaluated_step = record.step + 1;
  if (!tracks_best()) return;
  const EvalMetric metric = find_eval_metric(config_.eval.best_metric).value();
  const double sign = metric.higher_is_better ? 1 : -1;
  ++progress_.evaluations_since_best;
  // A value that is not finite is no improvement.
  const double value = metric_of(record, metric).value_or(NAN);
  const bool is_first = progress_.best_step < 0;
  if (!std::isfinite(value) || !(is_first || sign * value > sign * progress_.best)) return;
  progress_.best = value;
  progress_.best_step = progress_.evaluated_step;
  progress_.evaluations_since_best = 0;
}

absl::Status Evaluation::resume(const EvalProgress& restored) {
  progress_ = {};
  target_reached_ = false;
  if (config_.steps == 0) return absl::OkStatus();
  std::array<float, 4 * kFloatsPerU64> words{};
  const auto word = [&](size_t i) { return std::span(words).subspan(i * kFloatsPerU64); };
  const bool counts = restored.metric == config_.eval.best_metric;
  EvalProgress known = counts ? restored : EvalProgress{};
  // No evaluation is repeated for a metric that is not tracked.
  if (!tracks_best()) known.evaluated_step = restored.evaluated_step;
  const std::array<uint64_t, 4> sent = {std::bit_cast<uint64_t>(known.best),
                                        static_cast<uint64_t>(known.best_step),
                                        static_cast<uint64_t>(known.evaluations_since_best),
                                        static_cast<uint64_t>(known.evaluated_step)};
  for (size_t i = 0; i < sent.size(); ++i)
    std::ranges::copy(floats_of_u64(sent[i]), word(i).begin());
  if (auto status = context_.groups.world().broadcast(words, 0, "evaluation"); !status.ok())
    return status;
  progress_ = {.metric = config_.eval.best_metric,
               .best = std::bit_cast<double>(u64_of_floats(word(0))),
               .best_step = static_cast<int64_t>(u64_of_floats(word(1))),
               .evaluations_since_best = static_cast<int64_t>(u64_of_floats(word(2))),
               .evaluated_step = static_cast<int64_t>(u64_of_floats(word(3)))};
  return absl::OkStatus();
}

absl::Status Evaluation::evaluate_loss(RankModel& rank_model, EvalRecord& record) {
  StepPasses passes(rank_model);
  StepTail sum;
  DataFault fault;
  for (uint64_t i = 0; i < data_->steps(); ++i) {
    const auto load = [&](int32_t micro_batch) {
      enter_phase(context_, Phase::kEval);
      return fault.load(*data_, i * data_->samples_per_step(), micro_batch);
    };
    const LossSum loss = passes.evaluate(data_->micro_batches(), load).value();
    if (rank_model.broken()) break;
    sum.loss += loss.loss;
    sum.weight += loss.weight;
  }
  if (auto status = rank_model.finish_passes(); !status.ok()) return status;
  fault.vote(context_.groups.world().rank(), sum);
  std::array<float, kStepTailElements> tail{};
  sum.write(tail);
  if (auto status = context_.groups.world().all_reduce(tail, "evaluation"); !status.ok())
    return status;
  const StepTail total = StepTail::read(tail);
  if (data_verdict_ = fault.verdict(total); !data_verdict_.ok()) return data_verdict_;
  record.loss = total.weight > 0 ? total.loss / total.weight : 0;
  record.total_weights = total.weight;
  return absl::OkStatus();
}

absl::Status Evaluation::evaluate_preferences(RankModel& rank_model, EvalRecord& record) {
  PreferencePasses passes(config_, context_, rank_model, data_->positions(), pairs_max_);
  std::vector<PreferenceBatch> batches(static_cast<size_t>(data_->micro_batches()));
  PreferenceSums sums;
  DataFault fault;
  for (uint64_t i = 0; i < data_->steps(); ++i) {
    for (size_t batch = 0; batch < batches.size(); ++batch) {
      enter_phase(context_, Phase::kEval);
      batches[batch].hold(
          fault.load(*data_, i * data_->samples_per_step(), static_cast<int32_t>(batch)));
    }
    const auto scored = passes.score(batches, PreferencePasses::ScoreFor::kEvaluation);
    if (!scored.ok()) return scored.status();
    sums += *scored;
  }
  StepTail mine;
  fault.vote(context_.groups.world().rank(), mine);
  std::array<float, kStepTailElements> tail{};
  mine.write(tail);
  if (auto status = context_.groups.world().all_reduce(tail, "evaluation"); !status.ok())
    return status;
  if (data_verdict_ = fault.verdict(StepTail::read(tail)); !data_verdict_.ok())
    return data_verdict_;
  if (auto status = reduce_preferences(context_.groups.world(), sums); !status.ok()) return status;
  record.loss = sums.pairs > 0 ? sums.loss / sums.pairs : 0;
  record.total_weights = sums.pairs;
  record.preferences = sums;
  return absl::OkStatus();
}

absl::Status Evaluation::publish(const EvalRecord& record, MetricsLog& metrics) const {
  if (record.has_loss)
    context_.page.complete_evaluation(record.step + 1, record.loss, monotonic_now());
  absl::Status status;
  if (context_.groups.rank() == 0) {
    if (record.has_loss) context_.out << eval_line(record) << std::endl;
    if (record.has_loss && config_.only_evaluates())
      context_.out << eval_summary_line(record, data_->steps()) << std::endl;
    if (!record.tasks.empty())
      context_.out << eval_tasks_line(record) << table_of(record.tasks) << std::flush;
    if (target_reached_) context_.out << target_reached_line(config_.eval.target_loss) << std::endl;
    if (tracks_best()) context_.out << best_line() << std::endl;
    metrics.write(record);
    status = write_results(record);
    if (!status.ok() && config_.steps > 0) {
      context_.err << "warning: the results of evaluation tasks are lost: " << status.message()
                   << std::endl;
      status = absl::OkStatus();
    }
  }
  if (context_.on_evaluation) context_.on_evaluation(record);
  return status;
}

std::string Evaluation::best_line() const {
  const EvalProgress& p = progress_;
  const std::string best =
      p.best_step < 0 ? "none" : absl::StrFormat("%.6g after step %d", p.best, p.best_step - 1);
  if (!is_out_of_patience()) return absl::StrCat("best ", p.metric, ": ", best);
  return absl::StrCat("Early stop: ", p.metric, " has not improved in ",
                      counted(static_cast<uint64_t>(p.evaluations_since_best), "evaluation"),
                      "; best: ", best);
}

// Writes a file, because a folder with permission to write may be read-only nevertheless.
absl::Status Evaluation::prepare_output() const {
  const std::string& folder = config_.eval.output;
  if (tasks_.empty() || context_.groups.rank() != 0) return absl::OkStatus();
  if (folder.empty()) {
    if (is_object_url(config_.checkpoint_directory)) {
      context_.err << "warning: the results of evaluation tasks go to the log alone, because "
                      "base_output_directory is an object store; eval_output names a local folder"
                   << std::endl;
    }
    return absl::OkStatus();
  }
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  const std::string probe = absl::StrCat(folder, "/.probe");
  absl::Status status = error ? errno_status(error.value(), folder) : absl::OkStatus();
  if (status.ok()) status = write_file_atomically(probe, "");
  std::filesystem::remove(probe, error);
  if (status.ok()) return status;
  return {status.code(), absl::StrCat("eval_output: ", status.message())};
}

absl::Status Evaluation::write_results(const EvalRecord& record) const {
  const std::string& folder = config_.eval.output;
  if (folder.empty() || tasks_.empty()) return absl::OkStatus();
  // Each file belongs to the state after so many steps.
  const auto path = [&](const std::string& name, const char* ending) {
    return absl::StrCat(folder, "/", name, "-", record.step + 1, ending);
  };
  for (size_t i = 0; i < tasks_.size(); ++i) {
    const std::string samples = path(record.tasks[i].task, ".jsonl");
    if (auto status = write_file_atomically(samples, tasks_[i]->sample_lines()); !status.ok())
      return status;
  }
  return write_file_atomically(path("results", ".json"), results_json(record, config_.run_name));
}

}  // namespace muster::trainer
