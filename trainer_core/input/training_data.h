// Opens and checks the data that a config states: the sequences to train on and to evaluate. Ranks
// and the preflight use the same function.
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

// The opened data of a training.
struct TrainingData {
  std::vector<WeightedSamples> train;          // empty: synthetic data
  std::vector<std::unique_ptr<Samples>> eval;  // empty: no evaluation
  // All data sets from which sequences are read.
  std::vector<std::shared_ptr<const TokenDataset>> datasets;
  // A hash of the checksums of all shards. Ranks that read the same tokens have equal fingerprints.
  uint64_t fingerprint = 0;
  // Sentences for the log about the samples for fine-tuning; empty without such samples.
  std::vector<std::string> notes;
  // The maximum number of pairs in a sequence with use_dpo; otherwise 0.
  int64_t pairs_max = 0;
  nlohmann::json order;  // the data order of the training (data_order.h)

  // Return the number of sequences in an epoch, and the number of sequences that can be evaluated.
  uint64_t train_sequences() const;
  uint64_t eval_sequences() const;
};

// Opens the data of a config. Returns the errors of TokenDataset::open(). Returns InvalidArgument
// if there is no sequence to train on or to evaluate, if num_epoch epochs have less than one batch,
// or if there are too few sequences for eval_steps.
absl::StatusOr<TrainingData> open_training_data(const TrainConfig& config);

}  // namespace muster::trainer
