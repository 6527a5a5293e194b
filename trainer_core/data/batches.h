// The sequences that a rank trains on at each step. Their order depends only on the seed, so the
// global batch of a step is the same on every mesh, for every division into micro-batches, and
// after every restart. The k-th sequence of slice `rank` at a step is found in three stages:
//
//   global sample = first + rank * per_device + k. `first` is the first sample of the step:
//                   s * global_batch for step s, unless batches were skipped (train.h)
//   (source, i)   = blend(global sample): the i-th sample that is drawn from data set `source`
//   sequence      = permutation(seed, epoch i / n)(i mod n), one of the data set's n sequences
//
// Once all sequences of a data set were read, it is read again in a new order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/samples.h"

namespace muster::trainer {

// The sizes of a rank's batches.
struct BatchGeometry {
  int32_t rank = 0;        // index of the rank's slice of a step's samples
  int32_t ranks = 1;       // number of slices
  int32_t per_device = 1;  // sequences of a slice per step
  int32_t seq_len = 0;     // S
  int32_t vocab_size = 0;

  // Returns the sequences of a step over all slices.
  uint64_t global_batch() const {
    return static_cast<uint64_t>(per_device) * static_cast<uint64_t>(ranks);
  }
};

// A data set and its share of the samples.
struct WeightedSamples {
  std::unique_ptr<Samples> samples;  // not empty
  double weight = 1;
};

// Fills the batches of a rank. Called on one thread only.
class BatchSource {
 public:
  // Returns a source of MaxText's synthetic data: one fixed batch, the same at every step.
  static std::unique_ptr<BatchSource> synthetic(const BatchGeometry& geometry);
  // Returns a source that mixes data sets by weight and never ends. Requires 1 to kBlendSourcesMax
  // data sets.
  static std::unique_ptr<BatchSource> endless(std::vector<WeightedSamples> sources,
                                              const BatchGeometry& geometry, uint64_t seed,
                                              bool shuffle);
  // Returns a source that reads every sequence of the data sets once, in order. After the last
  // sequence it fills batches with sequences of weight 0.
  static std::unique_ptr<BatchSource> once(std::vector<std::unique_ptr<Samples>> sources,
                                           const BatchGeometry& geometry);
  virtual ~BatchSource() = default;

  // Fills `out` with this rank's sequences of the step whose first global sample is `first`. Skips
  // the rank's first `skipped` sequences, and writes as many as the spans have room for.
  virtual absl::Status fill(uint64_t first, int32_t skipped, const SequenceSpans& out) = 0;
};

}  // namespace muster::trainer
