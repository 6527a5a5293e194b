#include "trainer_core/loop/task_evaluation.h"

#include <algorithm>
#include <utility>

#include "common/time/time.h"
#include "trainer_core/base/check.h"
#include "trainer_core/rank/step_passes.h"

namespace muster::trainer {
namespace {

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
    : context_(context), task_(std::move(task)) {
  layout_ = std::make_shared<const ScoredLayout>(task_.take_requests(), config.max_target_length,
                                                 kind_of_requests(config));
  data_ = StepData::evaluation(config, context.groups.rank(), only(scored_samples(layout_)),
                               /*batches=*/-1);
}

absl::StatusOr<TaskResult> TaskEvaluation::run(RankModel& rank_model) {
  const Instant begin = monotonic_now();
  scores_.assign(layout_->requests().size(), TargetScore{});
  for (uint64_t i = 0; i < data_->steps(); ++i) {
    if (auto status = run_step(rank_model, i * data_->samples_per_step()); !status.ok())
      return status;
  }
  if (auto status = reduce_scores(); !status.ok()) return status;
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
  add_own_scores(rank_model, first, own);
  return absl::OkStatus();
}

// Adds the scores of all ranks. Each target is scored by one rank.
absl::Status TaskEvaluation::reduce_scores() {
  // For each request: its log-probability, and the number of ranks with a target that is not
  // greedy.
  std::vector<float> sums;
  sums.reserve(2 * scores_.size());
  for (const TargetScore& score : scores_) {
    sums.push_back(static_cast<float>(score.log_probability));
    sums.push_back(score.is_greedy ? 0.0F : 1.0F);
  }
  if (auto status = context_.groups.world().all_reduce(sums, "evaluation"); !status.ok())
    return status;
  for (size_t i = 0; i < scores_.size(); ++i) scores_[i] = {sums[2 * i], sums[2 * i + 1] == 0};
  return absl::OkStatus();
}

// `own`: the scores of the rows of this rank, one micro-batch after the other; empty on pipeline
// stages without the head.
void TaskEvaluation::add_own_scores(RankModel& rank_model, uint64_t first,
                                    std::span<const TargetScore> own) {
  if (own.empty()) return;
  const TransformerPlan& plan = rank_model.plan().model;
  const Positions& positions = data_->positions();
  const auto rows = static_cast<size_t>(plan.own_rows());
  const auto micro_batches = static_cast<size_t>(data_->micro_batches());
  MUSTER_CHECK(own.size() == micro_batches * rows)
      << own.size() << " scores of " << micro_batches << " micro-batches of " << rows << " rows";
  const auto at = [&](size_t row) { return plan.first_own_row() + static_cast<int64_t>(row); };
  const auto sample_of = [&](size_t row) {
    return static_cast<uint64_t>(at(row) / positions.count());
  };
  std::vector<TargetScore> sequence(static_cast<size_t>(layout_->seq_len()));
  for (int32_t micro_batch = 0; micro_batch < data_->micro_batches(); ++micro_batch) {
    const SampleRange samples = data_->samples(first, micro_batch);
    for (size_t row = 0; row < rows;) {
      const uint64_t sample = sample_of(row), number = samples.first + sample;
      if (sample >= samples.count || number >= layout_->sequences()) break;
      // Positions of other ranks add nothing.
      std::ranges::fill(sequence, TargetScore{});
      for (; row < rows && sample_of(row) == sample; ++row)
        sequence[static_cast<size_t>(positions.at(at(row) % positions.count()))] = own[row];
      layout_->add_scores(number, sequence, scores_);
    }
    own = own.subspan(rows);
  }
}

}  // namespace muster::trainer
