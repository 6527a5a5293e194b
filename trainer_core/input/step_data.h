// The batches of one rank's steps. A step consists of k micro-batches of b sequences. Its samples
// depend only on the step's first sample, so that k micro-batches of b have the samples of one
// batch of k b:
//
//   global sample = first + slice * k b + micro_batch * b + i
//
// The slice is the rank's batch_slice() (base/train_mesh.h), over ranks along data, fsdp and
// expert.
//
// A rank reads only its own positions of the sequences (model/token_layout.h). Batches are read
// ahead of their use (data/prefetch.h): load() waits only for a batch that is not read yet.
#pragma once

#include <cstdint>
#include <memory>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/prefetch.h"
#include "trainer_core/input/training_data.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// Global samples [first, first + count).
struct SampleRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

// Not thread-safe: called on one thread only.
class StepData {
 public:
  // The training's batches: endless, or with num_epoch until the last whole batch of the last
  // epoch.
  static std::unique_ptr<StepData> training(const TrainConfig& config, int rank,
                                            TrainingData& data);
  // The batches of an evaluation, of eval_per_device_batch_size sequences each. They are divided
  // into micro-batches of training's size, so that the step's memory plan serves both; sequences
  // that pad the last micro-batch have weight 0. Each sequence is evaluated once.
  static std::unique_ptr<StepData> evaluation(const TrainConfig& config, int rank,
                                              TrainingData& data);

  int32_t micro_batches() const { return order_.micro_batches; }
  uint64_t samples_per_step() const { return geometry_.global_batch(); }  // over all ranks
  // Returns the number of tokens of a step that this rank computes: its share of its slice.
  double tokens_per_step() const;
  // Returns the number of steps from sample 0.
  uint64_t steps() const { return samples_ / samples_per_step(); }
  // Returns whether too few samples remain for a step that begins at sample `first`.
  bool ends_at(uint64_t first) const { return first + samples_per_step() > samples_; }

  // Returns micro-batch `micro_batch` of the step whose first sample is `first`. The result is
  // valid until the next call. Blocks until it is read. Errors are those of the data source.
  absl::StatusOr<Batch> load(uint64_t first, int32_t micro_batch);
  // Returns a batch in which every target has weight 0. Valid until the next call of blank().
  Batch blank();
  // Returns the global samples of micro-batch `micro_batch` of the step at `first`.
  SampleRange samples(uint64_t first, int32_t micro_batch) const;

 private:
  StepData(const BatchGeometry& geometry, const BatchSequence& order, int32_t ranks_of_slice,
           uint64_t samples, uint64_t seed, std::unique_ptr<BatchSource> source);

  BatchGeometry geometry_;
  BatchSequence order_;
  int32_t ranks_of_slice_;
  uint64_t samples_;    // available, over all ranks
  uint64_t seed_;       // of dropout
  BatchBuffers blank_;  // filled by blank()
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace muster::trainer
