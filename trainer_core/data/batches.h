// The sequences that a rank trains on at a step, and their order. The order depends only on the
// seed, so the global batch of a step is the same on every mesh, for every division into
// micro-batches, and after every restart:
//
//   global sample = first + rank * per_device + k. `first` is the step's first sample: s *
//                   global_batch for step s, unless batches were skipped (train.h)
//   source, i     = blend(global sample): the i-th sample that is drawn from that data set
//   sequence      = permutation(seed, epoch i / n)(i mod n) of the data set's n sequences
//
// A data set that is used up starts again, in a new order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <absl/status/statusor.h>

#include "trainer_core/data/samples.h"

namespace muster::trainer {

struct BatchGeometry {
  int32_t rank = 0;        // index of the slice of a step's samples
  int32_t ranks = 1;       // number of slices
  int32_t per_device = 1;  // sequences of a slice per step
  int32_t seq_len = 0;     // S
  int32_t vocab_size = 0;

  uint64_t global_batch() const {
    return static_cast<uint64_t>(per_device) * static_cast<uint64_t>(ranks);
  }
};

// A data set and its share of the samples.
struct WeightedSamples {
  std::unique_ptr<Samples> samples;  // not empty
  double weight = 1;
};

// Fills a rank's batches. Not thread-safe: called on one thread only.
class BatchSource {
 public:
  // MaxText's synthetic data: one fixed batch, the same at every step.
  static std::unique_ptr<BatchSource> synthetic(const BatchGeometry& geometry);
  // Never ends. Requires: 1 to kBlendSourcesMax sources.
  static std::unique_ptr<BatchSource> endless(std::vector<WeightedSamples> sources,
                                              const BatchGeometry& geometry, uint64_t seed,
                                              bool shuffle);
  // Reads every sequence of the sources once, in order. Sequences after the last have weight 0.
  static std::unique_ptr<BatchSource> once(std::vector<std::unique_ptr<Samples>> sources,
                                           const BatchGeometry& geometry);
  virtual ~BatchSource() = default;

  // Fills `out` with sequences of the step whose first global sample is `first`: the rank's
  // sequences from index `skipped` on, as many as the spans hold.
  virtual absl::Status fill(uint64_t first, int32_t skipped, const SequenceSpans& out) = 0;
};

}  // namespace muster::trainer
