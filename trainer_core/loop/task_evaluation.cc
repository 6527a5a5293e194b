#include "trainer_core/loop/task_evaluation.h"

#include <algorithm>
#include <utility>

#include "common/time/time.h"
#include "trainer_core/rank/step_passes.h"

namespace muster::trainer {
namespace {

constexpr size_t kTableFields = 2;

Samples::Kind kind_of_requests(const TrainConfig& config) {
  return config.packed() ? Samples::Kind::kPacked : Samples::Kind::kDocuments;
}

std::vector<std::unique_ptr<Samples>> only(std::unique_ptr<Samples> samples) {
  std::vector<std::unique_ptr<Samples>> list;
  list.push_back(std::move(samples));
  return list;
}

}  // namespace

TaskEvaluation::TaskEvaluation(const TrainConfig& config, const TrainContext& context,
                               EvalTask task)
    : config_(config), context_(context), task_(std::move(task)) {
  layout_ = std::make_shared<const ScoredLayout>(task_.take_requests(), config.max_target_length,
                                                 kind_of_requests(config));
  data_ = StepData::evaluation(config, context.groups.rank(), only(scored_samples(layout_)),
                               /*batches=*/-1);
  table_.resize(data_->samples_per_step() * static_cast<size_t>(config.max_target_length) *
                kTableFields);
}

absl::StatusOr<TaskResult> TaskEvaluation::run(RankModel& rank_model) {
  const Instant begin = monotonic_now();
  scores_.assign(layout_->requests().size(), TargetScore{});
  for (uint64_t i = 0; i < data_->steps(); ++i) {
    if (auto status = run_step(rank_model, i * data_->samples_per_step()); !status.ok())
      return status;
  }
  TaskResult result = task_.result(scores_);
  result.seconds = to_seconds(monotonic_now() - begin);
  return result;
}

absl::Status TaskEvaluation::run_step(RankModel& rank_model, uint64_t first) {
  StepPasses passes(rank_model);
  std::vector<TargetScore> own;
  rank_model.model().set_scores(&own);
  const auto load = [&](int32_t micro_batch) {
    enter_phase(context_, Phase::kEval);
    return data_->load(first, micro_batch);
  };
  const auto loss = passes.evaluate(data_->micro_batches(), load);
  rank_model.model().set_scores(nullptr);
  if (auto status = rank_model.finish_passes(); !status.ok()) return status;
  if (!loss.ok()) return loss.status();
  std::ranges::fill(table_, 0.0F);
  add_own_scores(rank_model, first, own);
  // Each target is scored by one rank: the others add zeros, which changes no bit.
  if (auto status = context_.groups.world().all_reduce(table_, "evaluation"); !status.ok())
    return status;
  const auto length = static_cast<size_t>(config_.max_target_length);
  std::vector<TargetScore> sequence(length);
  const uint64_t end = std::min(first + data_->samples_per_step(), layout_->sequences());
  for (uint64_t number = first; number < end; ++number) {
    const float* from = table_.data() + (number - first) * length * kTableFields;
    for (TargetScore& score : sequence) {
      score = {from[0], from[1] > 0};
      from += kTableFields;
    }
    layout_->add_scores(number, sequence, scores_);
  }
  return absl::OkStatus();
}

// `own`: the scores of the rows of this rank, one micro-batch after the other; empty on pipeline
// stages without the head.
void TaskEvaluation::add_own_scores(RankModel& rank_model, uint64_t first,
                                    std::span<const TargetScore> own) {
  const TransformerPlan& plan = rank_model.plan().model;
  const Positions positions = data_->positions();
  const auto rows = static_cast<size_t>(plan.own_rows());
  for (int32_t micro_batch = 0; micro_batch < data_->micro_batches(); ++micro_batch) {
    if (own.size() < rows) return;
    const SampleRange samples = data_->samples(first, micro_batch);
    for (size_t row = 0; row < rows; ++row) {
      const int64_t at = plan.first_own_row() + static_cast<int64_t>(row);
      const auto sample = static_cast<uint64_t>(at / positions.count());
      if (sample >= samples.count) break;
      const int64_t position = positions.at(at % positions.count());
      const size_t to =
          (samples.first - first + sample) * static_cast<size_t>(config_.max_target_length) +
          static_cast<size_t>(position);
      table_[to * kTableFields] = static_cast<float>(own[row].log_probability);
      table_[to * kTableFields + 1] = own[row].is_greedy ? 1.0F : 0.0F;
    }
    own = own.subspan(rows);
  }
}

}  // namespace muster::trainer
