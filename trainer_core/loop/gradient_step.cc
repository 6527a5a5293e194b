#include "trainer_core/loop/gradient_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "trainer_core/optim/schedule.h"

namespace muster::trainer {

GradientStep::GradientStep(const TrainConfig& config, const TrainContext& context,
                           RankModel& rank_model, StepData& data, int64_t pairs_max)
    : config_(config),
      context_(context),
      rank_model_(rank_model),
      data_(data),
      passes_(rank_model),
      tflops_(step_tflops(config)) {
  if (config.dpo.enabled)
    preferences_.emplace(config, context, rank_model, data.positions(), pairs_max);
}

LossSum GradientStep::compute(uint64_t position) {
  data_fault_ = {};
  data_wait_ = Duration::zero();
  comm_before_ = comm_times();
  if (rank_model_.messages() != nullptr) waited_before_ = rank_model_.messages()->waited();
  const auto load = [&](int32_t micro_batch) {
    enter_phase(context_, Phase::kData);
    const Instant begun = monotonic_now();
    const Batch batch = data_fault_.load(data_, position, micro_batch);
    data_wait_ += monotonic_now() - begun;
    enter_phase(context_, Phase::kStep);
    return batch;
  };
  if (preferences_) return compute_preferences(load);
  return passes_.train(data_.micro_batches(), load, {}).value();  // `load` never fails
}

LossSum GradientStep::compute_preferences(const StepPasses::Load& load) {
  std::vector<PreferenceBatch> batches(static_cast<size_t>(data_.micro_batches()));
  for (size_t i = 0; i < batches.size(); ++i)
    batches[i].hold(load(static_cast<int32_t>(i)).value());  // `load` never fails
  const auto scored = preferences_->score(batches, PreferencePasses::ScoreFor::kGradient);
  score_status_ = scored.status();
  if (!scored.ok()) return {};
  preference_sums_ = *scored;
  const auto held = [&](int32_t i) { return batches[static_cast<size_t>(i)].batch(); };
  const LossSum sum = passes_.train(data_.micro_batches(), held, {}).value();
  return {.loss = preference_sums_.loss + sum.balance,
          .weight = preference_sums_.pairs,
          .balance = sum.balance,
          .routed = sum.routed,
          .dropped = sum.dropped};
}

absl::StatusOr<StepTail> GradientStep::reduce(const LossSum& local, bool saving) {
  const OpRange range(rank_model_.ops(), "reduce");
  if (!score_status_.ok()) return score_status_;
  if (auto status = rank_model_.finish_passes(); !status.ok()) return status;
  comm_ = comm_times() - comm_before_;
  ProcessGroup& world = context_.groups.world();
  squares_ = rank_model_.ops().sum_of_squares(RankModel::flat(rank_model_.model().grads()));
  StepTail mine{.loss = local.loss,
                .weight = local.weight,
                .stop_votes = context_.signals.stop ? 1 : 0,
                .checkpoint_votes = context_.signals.checkpoint.exchange(false) ? 1 : 0,
                .balance = local.balance,
                .routed = local.routed,
                .dropped = local.dropped,
                .squares = count_once(squares_),
                .saving_votes = saving ? 1 : 0};
  if (!std::isfinite(local.loss)) {
    mine.bad_ranks = 1;
    mine.bad_rank_sum = world.rank();
  }
  data_fault_.vote(world.rank(), mine);
  std::array<float, kStepTailElements> tail{};
  mine.write(tail);
  if (auto status = world.all_reduce(tail, "step"); !status.ok()) return status;
  if (preferences_) {
    if (auto status = reduce_preferences(world, preference_sums_); !status.ok()) return status;
  }
  // The maximum makes all ranks continue with the same scales. If a magnitude is NaN, so are
  // gradients, and the step is not applied.
  if (const auto amaxes = rank_model_.model().amaxes(); !amaxes.empty()) {
    if (auto status = world.all_reduce_max(amaxes, "amaxes"); !status.ok()) return status;
  }
  const StepTail reduced = StepTail::read(tail);
  // A rank that has all gradients uses its own sum of squares, which is not rounded by the encoding
  // of StepTail.
  if (rank_model_.shares_parameters()) squares_ = reduced.squares;
  return reduced;
}

CommTimes GradientStep::comm_times() const {
  CommTimes times = rank_model_.comm_times();
  const Duration waited = context_.groups.busy(kComputeChannel);
  times.busy += waited;
  times.blocked += waited;
  return times;
}

double GradientStep::count_once(double sum) const {
  const MeshCoordinate coordinate = context_.groups.mesh().coordinate(context_.groups.rank());
  return coordinate[static_cast<size_t>(MeshAxis::kData)] == 0 ? sum : 0;
}

absl::StatusOr<double> GradientStep::parameter_norm() {
  const double squares = rank_model_.ops().sum_of_squares(rank_model_.model().parameters());
  if (!rank_model_.shares_parameters()) return std::sqrt(squares);
  auto parts = split_wide(count_once(squares));
  if (auto status = context_.groups.world().all_reduce(parts, "parameter norm"); !status.ok())
    return status;
  return std::sqrt(join_wide(parts));
}

double GradientStep::clipped(double norm) const {
  const double threshold = config_.optimizer.clipping_threshold;
  return threshold > 0 ? std::min(norm, threshold) : norm;
}

double GradientStep::common_grad_norm(const StepTail& reduced) const {
  return clipped(std::sqrt(reduced.squares) / divisor(reduced));
}

double GradientStep::collective_wait_seconds() const {
  Duration waited = comm_times().blocked - comm_before_.blocked;
  if (StageMessages* messages = rank_model_.messages(); messages != nullptr)
    waited += messages->waited() - waited_before_;
  return to_seconds(waited);
}

StepRecord GradientStep::record(int64_t step, int64_t updates, const StepTail& reduced) const {
  const double weight = divisor(reduced);
  StepRecord record;
  record.step = step;
  record.data_wait_seconds = to_seconds(data_wait_);
  record.tflops_per_device = tflops_.total();
  record.tflops_causal_per_device = tflops_.total_causal();
  record.tokens_per_device = data_.tokens_per_step();
  record.total_weights = reduced.weight;
  record.loss = reduced.loss / weight;
  record.raw_grad_norm = std::sqrt(squares_) / weight;
  // Norms above the threshold become exactly equal, so that none of them is taken for a spike.
  record.grad_norm = clipped(record.raw_grad_norm);
  if (context_.groups.mesh().ranks() > 1) record.comm = {to_seconds(comm_.busy), comm_.hidden()};
  if (StageMessages* messages = rank_model_.messages(); messages != nullptr) {
    record.pipeline = {pipeline_bubble(pipeline_shape(config_)),
                       to_seconds(messages->waited() - waited_before_)};
  }
  if (preferences_) record.preferences = preference_sums_;
  record.learning_rate = learning_rate(config_.optimizer, updates);
  if (reduced.routed > 0) {
    record.experts = {reduced.balance / weight,
                      static_cast<double>(reduced.dropped) / static_cast<double>(reduced.routed)};
  }
  return record;
}

}  // namespace muster::trainer
