// The passes of direct preference optimization before the gradient: scores the pairs of a step with
// the reference model and the policy, and makes the derivatives of the loss (dpo_loss.h) the
// weights of targets. The gradient is then that of a cross-entropy with these weights, so the
// gradient passes, and all exchanges of the mesh, are those of any training.
//
// The reference parameters are in the memory of the rank, sharded as the trained ones
// (Sharding::has_reference). The reference passes read them instead of the trained ones, in the
// same activations and gathered slots (RankModel::read_reference). The trained state does not
// change, because a checkpoint may be copied or saved meanwhile. Log-probabilities of the reference
// are computed again for each batch: a stored value per pair would need a pass over the whole data
// set before the first step, and again after each change of data or batch.
#pragma once

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/input/step_data.h"
#include "trainer_core/loop/dpo_loss.h"
#include "trainer_core/rank/rank_model.h"
#include "trainer_core/rank/step_passes.h"
#include "trainer_core/rank/train_context.h"
#include "trainer_core/report/step_log.h"

namespace muster::trainer {

// A copy of a micro-batch whose weights are replaced.
struct PreferenceBatch {
  std::vector<int32_t> tokens, targets, starts;
  // For each target: k + 1 if it belongs to the chosen answer of pair k of its sequence, -(k + 1)
  // if it belongs to the rejected one, otherwise 0 (data/dpo_samples.h).
  std::vector<float> labels;
  std::vector<float> weights;
  // For each target of a pair, its share of the tokens of both answers: a pair has the sum 1. So a
  // routing group of experts counts in the load-balancing loss as many times as it has pairs.
  std::vector<float> shares;
  DropoutSource dropout;

  void hold(const Batch& batch);
  Batch batch() const { return {tokens, targets, weights, dropout, starts, shares}; }
};

// Called on the thread of the training loop only. All references must outlive this object.
class PreferencePasses {
 public:
  // `positions`: those of each sequence that this rank reads. `pairs_max`: the maximum number of
  // pairs in a sequence.
  PreferencePasses(const TrainConfig& config, const TrainContext& context, RankModel& rank_model,
                   const Positions& positions, int64_t pairs_max)
      : config_(config),
        context_(context),
        rank_model_(rank_model),
        positions_(positions),
        pairs_max_(pairs_max) {}

  // Whether a gradient follows: then the policy is scored with the dropout of its pass. The
  // reference model has no dropout.
  enum class ScoreFor : uint8_t { kGradient, kEvaluation };
  // Scores the pairs of the micro-batches, and sets their weights to those of the gradient. Returns
  // this rank's part of the sums over pairs: the first rank of a slice returns all of its pairs.
  // Returns the errors of the groups.
  absl::StatusOr<PreferenceSums> score(std::vector<PreferenceBatch>& batches, ScoreFor purpose);

 private:
  // The log-probabilities of answers: for each micro-batch, sequence and pair, those of the chosen
  // and of the rejected answer.
  using Scores = std::vector<double>;

  size_t answer(size_t micro_batch, size_t row, float label) const;
  absl::Status run_passes(std::vector<PreferenceBatch>& batches, Scores& scores);
  absl::Status reduce(std::vector<Scores*> all);

  const TrainConfig& config_;
  const TrainContext& context_;
  RankModel& rank_model_;
  const Positions positions_;
  const int64_t pairs_max_;
};

// Replaces the sums of a rank by those of all ranks.
absl::Status reduce_preferences(ProcessGroup& world, PreferenceSums& sums);

}  // namespace muster::trainer
