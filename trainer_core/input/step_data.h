// The batches of one rank's steps. A step has so many micro-batches of B sequences; which samples they are depends on the step's
// first sample alone, so that k micro-batches of b are the samples of one of k b:
//
//   global sample = first + slice * k b + micro_batch * b + i
//
// where slices of the global batch are those of batch_slice() (base/train_mesh.h), of ranks along data, fsdp and expert.
//
// A rank has its positions of them (model/token_layout.h). They are read ahead of their use (data/prefetch.h): load() waits only for what is not there yet.
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

// One thread.
class StepData {
 public:
  // Training's: without end, or with num_epoch up to the last whole batch of the last epoch.
  static std::unique_ptr<StepData> training(const TrainConfig& config, int rank,
                                            TrainingData& data);
  // An evaluation's batches of eval_per_device_batch_size sequences, in micro-batches of training's size, so that the step's
  // memory plan serves both; what fills up the last one has weight 0. Each sequence comes once.
  static std::unique_ptr<StepData> evaluation(const TrainConfig& config, int rank,
                                              TrainingData& data);

  int32_t micro_batches() const { return order_.micro_batches; }
  uint64_t samples_per_step() const { return geometry_.global_batch(); }  // over all ranks
  double tokens_per_step() const;  // a rank's share of its slice's
  // Steps from sample 0 on.
  uint64_t steps() const { return samples_ / samples_per_step(); }
  // Whether there is no step whose first sample is `first`.
  bool ends_at(uint64_t first) const { return first + samples_per_step() > samples_; }

  // Micro-batch `micro_batch` of the step whose first sample is `first`, valid until the next call.
  absl::StatusOr<Batch> load(uint64_t first, int32_t micro_batch);
  // One in which nothing counts, valid until it is asked for again.
  Batch blank();
  // The samples that it consists of.
  SampleRange samples(uint64_t first, int32_t micro_batch) const;

 private:
  StepData(const BatchGeometry& geometry, const BatchSequence& order, int32_t ranks_of_slice,
           uint64_t samples, uint64_t seed, std::unique_ptr<BatchSource> source);

  BatchGeometry geometry_;
  BatchSequence order_;
  int32_t ranks_of_slice_;
  uint64_t samples_;    // that there are, over all ranks
  uint64_t seed_;       // of dropout
  BatchBuffers blank_;  // once it is asked for
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace muster::trainer
