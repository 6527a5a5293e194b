#include "trainer_core/loop/evaluation.h"

#include <array>

#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/step_tail.h"
#include "trainer_core/recovery/data_fault.h"

namespace muster::trainer {

Evaluation::Evaluation(const TrainConfig& config, const TrainContext& context, TrainingData& data)
    : config_(config),
      context_(context),
      data_(StepData::evaluation(config, context.groups.rank(), data)) {}

bool Evaluation::is_due(int64_t completed_steps) const {
  return completed_steps % config_.eval.interval == 0 && completed_steps >= config_.eval.start_step;
}

absl::StatusOr<EvalRecord> Evaluation::run(RankModel& rank_model, int64_t step) {
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
  const double mean = total.weight > 0 ? total.loss / total.weight : 0;
  return EvalRecord{.step = step, .loss = mean, .total_weights = total.weight};
}

void Evaluation::publish(const EvalRecord& record, MetricsLog& metrics) const {
  context_.page.complete_evaluation(record.step + 1, record.loss, monotonic_now());
  if (context_.groups.rank() == 0) {
    context_.out << eval_line(record) << std::endl;
    if (config_.steps == 0) context_.out << eval_summary_line(record, data_->steps()) << std::endl;
    if (reaches_target(record))
      context_.out << target_reached_line(config_.eval.target_loss) << std::endl;
    metrics.write(record);
  }
  if (context_.on_evaluation) context_.on_evaluation(record);
}

}  // namespace muster::trainer
