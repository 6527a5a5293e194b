#include "trainer_core/rank/step_passes.h"

namespace muster::trainer {

void StepPasses::HeldBatch::hold(const Batch& batch) {
  tokens.assign(batch.tokens.begin(), batch.tokens.end());
  targets.assign(batch.targets.begin(), batch.targets.end());
  weights.assign(batch.weights.begin(), batch.weights.end());
  routing_weights.assign(batch.routing_weights.begin(), batch.routing_weights.end());
  starts.assign(batch.starts.begin(), batch.starts.end());
  dropout = batch.dropout;
}

absl::StatusOr<LossSum> StepPasses::train(int32_t micro_batches, const Load& load,
                                          const Options& options) {
  if (!part().has_all_layers()) return train_stage(micro_batches, load, options);
  LossSum sum;
  for (int32_t i = 0; i < micro_batches && !rank_model_.broken(); ++i) {
    const auto batch = load(i);
    if (!batch.ok()) return batch.status();
    if (options.before_pass) options.before_pass(i);
    const bool last = options.sums_over_data && i + 1 == micro_batches;
    rank_model_.begin_pass({.first = i == 0, .last = last});
    sum +=
        rank_model_.model().forward_backward(*batch, i == 0 ? Accumulate::kNo : Accumulate::kYes);
  }
  return sum;
}

absl::StatusOr<LossSum> StepPasses::train_stage(int32_t micro_batches, const Load& load,
                                                const Options& options) {
  const TransformerPlan& plan = rank_model_.plan().model;
  const auto passes = pipeline_schedule(shape(micro_batches), part().stage.index);
  rank_model_.begin_pipeline_passes(passes);
  rank_model_.model().reset_amaxes();
  loaded_ = 0;
  LossSum sum;
  bool first = true;  // no pass has computed gradients yet
  for (size_t i = 0; i < passes.size() && !rank_model_.broken(); ++i) {
    const PipelinePass& pass = passes[i];
    const LayerRun run = plan.run(pass.chunk, pass.slot);
    const auto batch = begin(std::span(passes).subspan(i), run, load);
    if (!batch.ok()) return batch.status();
    if (options.before_pass) options.before_pass(pass.micro_batch);
    if (pass.kind == PassKind::kForward) {
      sum += rank_model_.model().forward_run(run, *batch);
    } else {
      const bool last = options.sums_over_data && pass.micro_batch + 1 == micro_batches;
      rank_model_.begin_pass({.first = first, .last = last});
      first = false;
      sum += rank_model_.model().backward_run(
          run, *batch, pass.micro_batch == 0 ? Accumulate::kNo : Accumulate::kYes);
    }
    leave(pass);
  }
  return sum;
}

std::optional<size_t> StepPasses::first_block(const PipelinePass& pass) const {
  const TransformerPlan& plan = rank_model_.plan().model;
  const LayerRun run = plan.run(pass.chunk, pass.slot);
  return pass.kind == PassKind::kForward ? plan.first_block_forward(run)
                                         : plan.first_block_backward(run);
}

absl::StatusOr<Batch> StepPasses::begin(std::span<const PipelinePass> passes, const LayerRun& run,
                                        const Load& load) {
  const PipelinePass& pass = passes.front();
  const auto slot = static_cast<size_t>(pass.batch);
  if (pass.kind == PassKind::kForward && pass.micro_batch == loaded_) {
    const auto batch = load(loaded_++);
    if (!batch.ok()) return batch.status();
    if (held_.size() <= slot) held_.resize(slot + 1);
    held_[slot].hold(*batch);
  }
  Transformer& model = rank_model_.model();
  const bool forward = pass.kind == PassKind::kForward;
  model.expect(first_block(pass));
  model.expect_after_next(passes.size() > 1 ? first_block(passes[1]) : std::nullopt);
  StageMessages& messages = *rank_model_.messages();
  if (messages.needs(pass))
    messages.receive(pass, forward ? model.entrance(run) : model.stream_gradient());
  return held_[slot].batch();
}

// Sends the result of a pass to the stage that needs it.
void StepPasses::leave(const PipelinePass& pass) {
  StageMessages& messages = *rank_model_.messages();
  if (rank_model_.broken() || !messages.feeds(pass)) return;
  const Tensor outgoing = messages.outgoing(pass);
  if (pass.kind == PassKind::kForward) {
    rank_model_.model().leave_run(outgoing);
  } else {
    rank_model_.ops().copy(rank_model_.model().stream_gradient(), outgoing);
  }
  messages.send(pass);
}

absl::StatusOr<LossSum> StepPasses::evaluate(int32_t micro_batches, const Load& load,
                                             const BeforePass& before_pass) {
  LossSum sum;
  if (part().has_all_layers()) {
    for (int32_t i = 0; i < micro_batches && !rank_model_.broken(); ++i) {
      const auto batch = load(i);
      if (!batch.ok()) return batch.status();
      if (before_pass) before_pass(i);
      sum += rank_model_.model().forward(*batch);
    }
    return sum;
  }
  const auto passes = forward_schedule(shape(micro_batches));
  rank_model_.begin_pipeline_passes(passes);
  loaded_ = 0;
  for (size_t i = 0; i < passes.size() && !rank_model_.broken(); ++i) {
    const PipelinePass& pass = passes[i];
    const LayerRun run = rank_model_.plan().model.run(pass.chunk);
    const auto batch = begin(std::span(passes).subspan(i), run, load);
    if (!batch.ok()) return batch.status();
    if (before_pass) before_pass(pass.micro_batch);
    sum += rank_model_.model().evaluate_run(run, *batch);
    leave(pass);
  }
  return sum;
}

}  // namespace muster::trainer
