// Chooses the data set (source) of each sample, so that the mixture follows the weights from the
// first sample on. Among the first n samples, the number of samples of source k differs from w_k *
// n by less than 1, for every n and k. This is the chairman assignment problem (Tijdeman, Discrete
// Mathematics 32, 1980). Weights are integer multiples of a part, and the schedule repeats after as
// many samples as there are parts. One period is computed and stored, so that the source of any
// sample is found in constant time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer_core/base/data_paths.h"

namespace muster::trainer {

// A schedule of sources. Immutable and thread-safe.
class Blend {
 public:
  // Requires 1 to kBlendSourcesMax weights, each at least 1 / kBlendPeriodMax of their sum. Weights
  // whose ratios need more than kBlendPeriodMax parts are rounded to that many parts.
  explicit Blend(std::span<const double> weights);

  struct Pick {
    size_t source = 0;
    uint64_t number = 0;  // earlier samples from the same source
  };
  // Returns the source of global sample `sample`, and how many earlier samples it has.
  Pick operator()(uint64_t sample) const;
  // Returns the source's share of all samples, after the rounding of the weights.
  double share(size_t source) const {
    return static_cast<double>(parts_[source]) / static_cast<double>(period_.size());
  }

 private:
  std::vector<uint64_t> parts_;  // samples of each source per period
  struct Entry {
    uint32_t source;
    uint32_t number;
  };
  std::vector<Entry> period_;
};

}  // namespace muster::trainer
