// The values that a step reduces over all ranks in addition to its gradients. A single collective
// reduces all of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trainer_core/comm/exact_floats.h"

namespace muster::trainer {

// The number of fp32 elements of an encoded StepTail.
constexpr size_t kStepTailElements = 21;

// The values: of one rank before the all-reduce, sums over all ranks after it.
struct StepTail {
  double loss = 0;           // sum over targets
  double weight = 0;         // sum of target weights
  int stop_votes = 0;        // ranks that request to stop
  int checkpoint_votes = 0;  // ranks that request a checkpoint
  int bad_ranks = 0;         // number of ranks whose loss is not finite
  int bad_rank_sum = 0;      // sum of their rank numbers; with one such rank, its number
  // The fields of LossSum with the same names.
  double balance = 0;
  int64_t routed = 0;
  int64_t dropped = 0;
  // The sum of the squares of all gradients; each gradient is counted by exactly one rank.
  double squares = 0;
  int data_faults = 0;          // number of ranks that cannot read their data
  int data_fault_rank_sum = 0;  // as bad_rank_sum
  int saving_votes = 0;         // number of ranks whose background save is in progress

  // Encodes the values as kStepTailElements elements whose sums over ranks are valid encodings.
  void write(std::span<float> tail) const {
    const auto loss_parts = split_double(loss);
    const auto balance_parts = split_double(balance);
    tail[0] = loss_parts[0];
    tail[1] = loss_parts[1];
    write_count(weight, tail.subspan(2));
    tail[4] = static_cast<float>(stop_votes);
    tail[5] = static_cast<float>(bad_ranks);
    tail[6] = static_cast<float>(bad_rank_sum);
    tail[7] = balance_parts[0];
    tail[8] = balance_parts[1];
    write_count(static_cast<double>(routed), tail.subspan(9));
    write_count(static_cast<double>(dropped), tail.subspan(11));
    tail[13] = static_cast<float>(checkpoint_votes);
    std::ranges::copy(split_wide(squares), tail.subspan(14).begin());
    tail[18] = static_cast<float>(data_faults);
    tail[19] = static_cast<float>(data_fault_rank_sum);
    tail[20] = static_cast<float>(saving_votes);
  }

  // Decodes the result of write(), or a sum of such results.
  static StepTail read(std::span<const float> tail) {
    StepTail total;
    total.loss = join_double(tail);
    total.weight = read_count(tail.subspan(2));
    total.stop_votes = static_cast<int>(tail[4]);
    total.bad_ranks = static_cast<int>(tail[5]);
    total.bad_rank_sum = static_cast<int>(tail[6]);
    total.balance = join_double(tail.subspan(7));
    total.routed = static_cast<int64_t>(read_count(tail.subspan(9)));
    total.dropped = static_cast<int64_t>(read_count(tail.subspan(11)));
    total.checkpoint_votes = static_cast<int>(tail[13]);
    total.squares = join_wide(tail.subspan(14));
    total.data_faults = static_cast<int>(tail[18]);
    total.data_fault_rank_sum = static_cast<int>(tail[19]);
    total.saving_votes = static_cast<int>(tail[20]);
    return total;
  }

 private:
  // Counts are encoded as two parts, because fp32 does not represent integers above 2^24 exactly.
  static constexpr double kCountUnit = 65536;

  static void write_count(double count, std::span<float> tail) {
    const double coarse = std::floor(count / kCountUnit);
    tail[0] = static_cast<float>(coarse);
    tail[1] = static_cast<float>(count - coarse * kCountUnit);
  }
  static double read_count(std::span<const float> tail) {
    return static_cast<double>(tail[0]) * kCountUnit + static_cast<double>(tail[1]);
  }
};

}  // namespace muster::trainer
