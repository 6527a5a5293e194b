// What a config's data keys mean: the sequences to train on and to evaluate, opened and judged. Ranks and the preflight open them
// alike.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>
#include <nlohmann/json.hpp>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/batches.h"
#include "trainer_core/data/token_dataset.h"

namespace muster::trainer {

struct TrainingData {
  std::vector<WeightedSamples> train;                         // none: synthetic
  std::vector<std::unique_ptr<Samples>> eval;                 // none: nothing is evaluated
  std::vector<std::shared_ptr<const TokenDataset>> datasets;  // whatever is read
  uint64_t fingerprint =
      0;                 // of the shards' tokens, by their checksums: equal where the same is read
  nlohmann::json order;  // of what is trained on (data_order.h)

  // Sequences of an epoch, and of all that can be evaluated.
  uint64_t train_sequences() const;
  uint64_t eval_sequences() const;
};

// Errors are TokenDataset's, and InvalidArgument when there is not one sequence to train on or to evaluate, or not what
// eval_steps asks for.
absl::StatusOr<TrainingData> open_training_data(const TrainConfig& config);

}  // namespace muster::trainer
