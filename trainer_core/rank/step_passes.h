// The passes of a rank over micro-batches: forward and backward of one after the other, or those of its stage of a pipeline, in the
// pipeline's order (parallel/pipeline_schedule.h), with what goes from stage to stage. Every stage reads the same batches itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/parallel/pipeline_schedule.h"
#include "trainer_core/rank/rank_model.h"

namespace muster::trainer {

// One thread, the replica's. The errors of `load` end the passes; those of groups are the replica's finish_passes() to say, after
// which results mean nothing.
class StepPasses {
 public:
  // The micro-batch with that number, valid until the next call. They are asked for once each and in order.
  using Load = std::function<absl::StatusOr<Batch>(int32_t micro_batch)>;

  // `replica` outlives it.
  explicit StepPasses(RankModel& rank_model) : rank_model_(rank_model) {}

  struct Options {
    bool sums_over_data = true;  // false: what ranks along data have is not asked for
    // Called before each pass of the micro-batch.
    std::function<void(int32_t micro_batch)> before_pass;
  };
  // All passes of a step of so many micro-batches, which are its config's where there is a pipeline, leaves its gradients; returns what
  // this rank has of the losses.
  absl::StatusOr<LossSum> train(int32_t micro_batches, const Load& load, const Options& options);
  // Forward passes of any number of micro-batches, without gradients and dropout.
  absl::StatusOr<LossSum> evaluate(int32_t micro_batches, const Load& load);

 private:
  // A micro-batch between its first and its last pass.
  struct HeldBatch {
    std::vector<int32_t> tokens, targets, starts;
    std::vector<float> weights;
    DropoutSource dropout;

    void hold(const Batch& batch);
    Batch batch() const { return {tokens, targets, weights, dropout, starts}; }
  };

  const PipelinePart& part() const { return rank_model_.plan().model.pipeline(); }
  PipelineShape shape(int32_t micro_batches) const {
    return {part().stage.ranks, part().chunks, micro_batches};
  }
  absl::StatusOr<LossSum> train_stage(int32_t micro_batches, const Load& load,
                                      const Options& options);
  // Which parameters the pass reads first, if they are not those that are there.
  std::optional<size_t> first_block(const PipelinePass& pass) const;
  // What the first of the passes reads: of its tokens, and of the stage before it. The others come after it.
  absl::StatusOr<Batch> begin(std::span<const PipelinePass> passes, const LayerRun& run,
                              const Load& load);
  void leave(const PipelinePass& pass);

  RankModel& rank_model_;
  std::vector<HeldBatch> held_;  // by PipelinePass::batch
  int32_t loaded_ = 0;           // micro-batches of these passes
};

}  // namespace muster::trainer
