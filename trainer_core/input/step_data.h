// The batches of the steps of a rank. A step has k micro-batches of b sequences per slice of the
// global batch. The samples of a step depend only on `first`, the first sample of the step. So k
// micro-batches of b sequences have the same samples as one batch of k b sequences:
//
//   global sample = first + slice * k b + micro_batch * b + i
//
// `slice` is the index of the rank's slice (batch_slice() in base/train_mesh.h).
//
// A rank reads only its own positions of each sequence (model/token_layout.h). Batches are read
// before they are used (data/prefetch.h), so load() rarely waits.
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

// The batches of a rank. Called on one thread only.
class StepData {
 public:
  // Returns the batches of the training. They never end or, with num_epoch, end with the last
  // complete batch of the last epoch.
  static std::unique_ptr<StepData> training(const TrainConfig& config, int rank,
                                            TrainingData& data);
  // Returns the batches of an evaluation, of eval_per_device_batch_size sequences each, in
  // `batches` steps or, if it is -1, in as many as `samples` takes. Each sequence is evaluated
  // once. The batches are divided into micro-batches of the size in training, so that both use the
  // same memory plan; the last micro-batch is padded with sequences of weight 0.
  static std::unique_ptr<StepData> evaluation(const TrainConfig& config, int rank,
                                              std::vector<std::unique_ptr<Samples>> samples,
                                              int64_t batches);

  int32_t micro_batches() const { return order_.micro_batches; }
  uint64_t samples_per_step() const { return geometry_.global_batch(); }  // over all ranks
  // Returns the number of tokens per step that this rank computes: its share of the tokens of its
  // slice.
  double tokens_per_step() const;
  // Returns the positions of each sequence that this rank reads.
  const Positions& positions() const { return positions_; }
  // Returns the number of steps from sample 0 to the end of the data.
  uint64_t steps() const { return samples_ / samples_per_step(); }
  // Returns whether too few samples remain for a step whose first sample is `first`.
  bool is_exhausted_at(uint64_t first) const { return first + samples_per_step() > samples_; }

  // Returns micro-batch `micro_batch` of the step whose first sample is `first`. Blocks until it is
  // read. The result is valid until the next call. Returns the errors of the data source.
  absl::StatusOr<Batch> load(uint64_t first, int32_t micro_batch);
  // Returns a batch in which every target has weight 0. Valid until the next call of blank().
  Batch blank();
  // Returns the global samples of this rank's slice in micro-batch `micro_batch` of the step whose
  // first sample is `first`, without padding.
  SampleRange samples(uint64_t first, int32_t micro_batch) const;

 private:
  StepData(const TrainConfig& config, int rank, const BatchGeometry& geometry,
           const BatchSequence& order, uint64_t samples, std::unique_ptr<BatchSource> source);

  BatchGeometry geometry_;
  BatchSequence order_;
  Positions positions_;
  int32_t ranks_of_slice_;
  uint64_t samples_;    // samples in the data, over all ranks
  uint64_t seed_;       // seed of dropout
  BatchBuffers blank_;  // filled by blank()
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace muster::trainer
