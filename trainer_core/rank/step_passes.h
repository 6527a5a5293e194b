// Runs the passes of a rank over micro-batches. Without a pipeline, these are the forward and
// backward passes of one micro-batch after the other. In a pipeline, they are the passes of the
// rank's stage in the order of the schedule (parallel/pipeline_schedule.h), with the messages
// between stages; every stage reads the batches itself.
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

// The passes of a rank. Called on the thread of the model only. An error of `load` ends the passes.
// RankModel::finish_passes() returns the errors of groups; after an error the results are
// undefined.
class StepPasses {
 public:
  // Returns micro-batch `micro_batch` of the step, valid until the next call. Called once for each
  // micro-batch, in order.
  using Load = std::function<absl::StatusOr<Batch>(int32_t micro_batch)>;

  // `rank_model` must outlive this object.
  explicit StepPasses(RankModel& rank_model) : rank_model_(rank_model) {}

  // Called before each pass over a micro-batch. May be empty.
  using BeforePass = std::function<void(int32_t micro_batch)>;

  struct Options {
    // Whether gradients are reduced over the ranks along the data axis.
    bool sums_over_data = true;
    BeforePass before_pass;
  };
  // Runs all passes of a step of `micro_batches` micro-batches, which compute its gradients.
  // Returns this rank's part of the losses. In a pipeline, requires that `micro_batches` is that of
  // the config.
  absl::StatusOr<LossSum> train(int32_t micro_batches, const Load& load, const Options& options);
  // Runs forward passes over any number of micro-batches, without gradients and dropout. Returns
  // this rank's part of the losses.
  absl::StatusOr<LossSum> evaluate(int32_t micro_batches, const Load& load,
                                   const BeforePass& before_pass = nullptr);

 private:
  // A copy of a micro-batch that exists from its first to its last pass on this stage.
  struct HeldBatch {
    std::vector<int32_t> tokens, targets, starts;
    std::vector<float> weights, routing_weights;
    DropoutSource dropout;

    void hold(const Batch& batch);
    Batch batch() const { return {tokens, targets, weights, dropout, starts, routing_weights}; }
  };

  const PipelinePart& part() const { return rank_model_.plan().model.pipeline(); }
  PipelineShape shape(int32_t micro_batches) const {
    return {part().stage.ranks, part().chunks, micro_batches};
  }
  absl::StatusOr<LossSum> train_stage(int32_t micro_batches, const Load& load,
                                      const Options& options);
  // Returns the parameter block that a pass reads first; nullopt if the blocks of the pass are
  // available already.
  std::optional<size_t> first_block(const PipelinePass& pass) const;
  // Prepares the first of `passes`: loads its batch and receives its input from the previous stage.
  // Also announces the first parameter blocks of the following passes.
  absl::StatusOr<Batch> begin(std::span<const PipelinePass> passes, const LayerRun& run,
                              const Load& load);
  // Sends the output of a pass to the next stage.
  void leave(const PipelinePass& pass);

  RankModel& rank_model_;
  std::vector<HeldBatch> held_;  // indexed by PipelinePass::batch
  int32_t loaded_ = 0;           // micro-batches loaded in the current step
};

}  // namespace muster::trainer
