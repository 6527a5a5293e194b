// Chooses the data set of each sample, so that the mixture follows the weights from the first
// sample on: after n samples, source k has given w_k n of them to within less than one, for every n
// and k. This is the chairman assignment problem (Tijdeman, Discrete Mathematics 32, 1980). Its
// schedule repeats after as many samples as the weights have parts; one period is computed and
// stored, so that the source of any sample is found in constant time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer_core/base/data_paths.h"

namespace muster::trainer {

// Immutable and thread-safe.
class Blend {
 public:
  // Requires: 1 to kBlendSourcesMax weights, each at least 1 / kBlendPeriodMax of their sum. Ratios
  // that need more parts are rounded to kBlendPeriodMax parts.
  explicit Blend(std::span<const double> weights);

  struct Pick {
    size_t source = 0;
    uint64_t number = 0;  // samples that the source has given before
  };
  Pick operator()(uint64_t sample) const;
  // The source's actual share of all samples, after the rounding of the weights.
  double share(size_t source) const {
    return static_cast<double>(parts_[source]) / static_cast<double>(period_.size());
  }

 private:
  std::vector<uint64_t> parts_;  // of each source in a period
  struct Entry {
    uint32_t source;
    uint32_t number;
  };
  std::vector<Entry> period_;
};

}  // namespace muster::trainer
