// The batches of one rank's steps. A step has gradient_accumulation_steps micro-batches of per_device_batch_size sequences;
// which samples they are depends on the step's first sample alone, so that k micro-batches of b are the samples of one of k b:
//
//   global sample = first + rank * k b + micro_batch * b + i
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/base/train_config.h"
#include "trainer_core/data/batches.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// Sequences of a rank and step.
int32_t sequences_per_step(const TrainConfig& config);

// Global samples [first, first + count).
struct SampleRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

// One thread.
class StepData {
 public:
  // Opens the data set; its errors are those of TokenDataset::open and BatchSource.
  static absl::StatusOr<std::unique_ptr<StepData>> open(const TrainConfig& config, int rank,
                                                        int ranks);

  int32_t micro_batches() const { return micro_batches_; }
  uint64_t samples_per_step() const;  // over all ranks
  size_t tokens_per_step() const;     // of this rank

  // Reads micro-batch `micro_batch` of the step whose first sample is `first`. The batch is valid until the next call.
  absl::StatusOr<Batch> load(uint64_t first, int32_t micro_batch);
  // The samples that it consists of.
  SampleRange samples(uint64_t first, int32_t micro_batch) const;

 private:
  StepData(const TrainConfig& config, const BatchGeometry& geometry,
           std::unique_ptr<BatchSource> source);

  BatchGeometry geometry_;
  uint64_t seed_;      // of dropout
  int32_t sequences_;  // of a micro-batch: B
  int32_t micro_batches_;
  std::unique_ptr<BatchSource> source_;
  std::vector<int32_t> tokens_;   // (B, S)
  std::vector<int32_t> targets_;  // (B, S)
  std::vector<float> weights_;    // (B, S)
};

}  // namespace muster::trainer
