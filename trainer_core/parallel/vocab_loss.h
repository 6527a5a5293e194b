// Cross-entropy if each rank of the tensor axis has the logits of some ids (Shoeybi et al.,
// "Megatron-LM", 2019, section 3). Three values per row are gathered: the largest logit, the sum of
// exponentials and the target's logit. From them every rank computes the same losses and its slice
// of the gradient. No rank ever holds a full row of logits.
//
// Bytes that a rank sends: 12 (T - 1) per row.
#pragma once

#include <cstdint>
#include <string_view>

#include <absl/status/status.h>

#include "trainer_core/comm/comm.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// R rows of a slice: logits (R, V'), targets, weights and losses (R), and memory for the three
// values per row of all T slices: (T, R, 3).
struct SlicedLogits {
  VocabularySlice slice;
  Tensor logits;
  Tensor targets;
  Tensor weights;
  Tensor losses;
  Tensor sums;
};

// The number of elements of SlicedLogits::sums.
constexpr int64_t vocab_loss_sums(int64_t rows, int ranks) { return ranks * rows * kLogitSums; }

// Ops::cross_entropy and Ops::cross_entropy_backward over the group whose ranks together have all
// ids. Return the group's errors.
absl::Status vocabulary_loss(Ops& ops, ProcessGroup& group, const LossShape& shape,
                             const SlicedLogits& rows, std::string_view name);
absl::Status vocabulary_loss_backward(Ops& ops, ProcessGroup& group, const LossShape& shape,
                                      const SlicedLogits& rows, std::string_view name);

}  // namespace muster::trainer
