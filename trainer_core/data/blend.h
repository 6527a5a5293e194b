// Which of several data sets each sample comes from, so that the mixture follows the weights from the first sample on: after n
// samples, source k has given w_k n of them, give or take less than one, for every n and k. That is the chairman assignment
// problem (Tijdeman, Discrete Mathematics 32, 1980), whose schedule repeats after as many samples as the weights have
// parts; one such period is computed and kept, so that any sample's source is found at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trainer_core/base/data_paths.h"

namespace muster::trainer {

// Immutable: any thread.
class Blend {
 public:
  // 1 to kBlendSourcesMax weights, each at least a kBlendPeriodMax-th of their sum. Ratios that take more parts are rounded to
  // so many.
  explicit Blend(std::span<const double> weights);

  struct Pick {
    size_t source = 0;
    uint64_t number = 0;  // how many the source has given before
  };
  Pick operator()(uint64_t sample) const;
  // Of all samples, as it is kept: what the weights were rounded to.
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
