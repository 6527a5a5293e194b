// What a step reduces beside its gradients, in the tail of the gradient block: one collective carries everything.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "trainer_core/exact_floats.h"
#include "trainer_core/model/transformer.h"

namespace muster::trainer {

// Of one rank before the all-reduce, of all ranks after it.
struct StepTail {
  double loss = 0;    // sum over targets
  double weight = 0;  // sum of target weights
  int stop_votes = 0;
  int bad_ranks = 0;     // ranks whose loss is not finite
  int bad_rank_sum = 0;  // sum of their numbers: the number itself when there is one

  void write(std::span<float> tail) const {
    const auto loss_parts = split_double(loss);
    const double coarse = std::floor(weight / kWeightUnit);
    tail[0] = loss_parts[0];
    tail[1] = loss_parts[1];
    tail[2] = static_cast<float>(coarse);
    tail[3] = static_cast<float>(weight - coarse * kWeightUnit);
    tail[4] = static_cast<float>(stop_votes);
    tail[5] = static_cast<float>(bad_ranks);
    tail[6] = static_cast<float>(bad_rank_sum);
    for (size_t i = 7; i < tail.size(); ++i) tail[i] = 0;
  }

  static StepTail read(std::span<const float> tail) {
    StepTail total;
    total.loss = static_cast<double>(tail[0]) + static_cast<double>(tail[1]);
    total.weight = static_cast<double>(tail[2]) * kWeightUnit + static_cast<double>(tail[3]);
    total.stop_votes = static_cast<int>(tail[4]);
    total.bad_ranks = static_cast<int>(tail[5]);
    total.bad_rank_sum = static_cast<int>(tail[6]);
    return total;
  }

 private:
  // Token counts beyond 2^24 are no fp32 integers; two parts are.
  static constexpr double kWeightUnit = 65536;
};
static_assert(kGradTailElements >= 7);

}  // namespace muster::trainer
