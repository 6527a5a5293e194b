// Runs a rank's passes over micro-batches: forward and backward of one micro-batch after another,
// or the passes of its pipeline stage in the schedule's order (parallel/pipeline_schedule.h), with
// the messages between stages. Every stage reads the same batches by itself.
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

// Called on the model's thread only. An error of `load` ends the passes. Errors of groups are
// returned by RankModel::finish_passes(); after one the results are undefined.
class StepPasses {
 public:
  // Returns the micro-batch with that index, valid until the next call. Called once for each
  // micro-batch, in order.
  using Load = std::function<absl::StatusOr<Batch>(int32_t micro_batch)>;

  // `rank_model` outlives this object.
  explicit StepPasses(RankModel& rank_model) : rank_model_(rank_model) {}

  struct Options {
    // False: gradients are not reduced over the ranks along data.
    bool sums_over_data = true;
    // Called before each pass over a micro-batch. May be empty.
    std::function<void(int32_t micro_batch)> before_pass;
  };
  // Runs all passes of a step with that many micro-batches and leaves its gradients. Returns this
  // rank's part of the losses. Requires in a pipeline: `micro_batches` is the config's number.
  absl::StatusOr<LossSum> train(int32_t micro_batches, const Load& load, const Options& options);
  // Runs forward passes over any number of micro-batches, without gradients and dropout.
  absl::StatusOr<LossSum> evaluate(int32_t micro_batches, const Load& load);

 private:
  // The copy of a micro-batch between its first and its last pass.
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
  // The parameter block that the pass reads first; nullopt if it needs none beyond the resident
  // ones.
  std::optional<size_t> first_block(const PipelinePass& pass) const;
  // Prepares the first of `passes`: loads its batch and receives the input from the previous stage.
  // The later passes are used to prefetch parameters.
  absl::StatusOr<Batch> begin(std::span<const PipelinePass> passes, const LayerRun& run,
                              const Load& load);
  void leave(const PipelinePass& pass);

  RankModel& rank_model_;
  std::vector<HeldBatch> held_;  // by PipelinePass::batch
  int32_t loaded_ = 0;           // micro-batches loaded since the passes began
};

}  // namespace muster::trainer
