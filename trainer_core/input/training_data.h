// The sequences to train on and to evaluate, opened and checked according to a config's data keys.
// Ranks and the preflight open them in the same way.
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
  std::vector<WeightedSamples> train;          // empty: synthetic data
  std::vector<std::unique_ptr<Samples>> eval;  // empty: no evaluation
  // All data sets that are read.
  std::vector<std::shared_ptr<const TokenDataset>> datasets;
  // A hash of the shards' checksums: equal on ranks that read the same tokens.
  uint64_t fingerprint = 0;
  nlohmann::json order;  // the data order of the training (data_order.h)

  // The number of sequences in one epoch, and of all sequences that can be evaluated.
  uint64_t train_sequences() const;
  uint64_t eval_sequences() const;
};

// Errors: those of TokenDataset::open(), and InvalidArgument if there is no sequence to train on or
// to evaluate, less than one batch in num_epoch epochs, or too few sequences for eval_steps.
absl::StatusOr<TrainingData> open_training_data(const TrainConfig& config);

}  // namespace muster::trainer
