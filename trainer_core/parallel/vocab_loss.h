// Cross-entropy if each of the T ranks of the tensor axis has the logits of some vocabulary ids
// (Shoeybi et al., "Megatron-LM", 2019, section 3). The ranks gather three values per row: the
// largest logit, the sum of exponentials and the target's logit. From these values every rank
// computes the losses, which are the same on all ranks, and the gradient of its own logits. No rank
// has a complete row of logits at any time.
//
// A rank sends 12 (T - 1) bytes per row.
#pragma once

#include <cstdint>
#include <string_view>

#include <absl/status/status.h>

#include "trainer_core/comm/comm.h"
#include "trainer_core/ops/ops.h"

namespace muster::trainer {

// R rows of a slice: logits (R, V') and, in a backward pass, their gradient, which in fp32 may
// replace them; targets, weights and losses (R), and memory for the three values per row of all T
// slices: (T, R, 3).
struct SlicedLogits {
  VocabularySlice slice;
  Tensor logits;
  Tensor d_logits;
  Tensor targets;
  Tensor weights;
  Tensor losses;
  Tensor sums;
};

// Returns the number of elements of SlicedLogits::sums.
constexpr int64_t vocab_loss_sums(int64_t rows, int ranks) { return ranks * rows * kLogitSums; }

// Compute Ops::cross_entropy and Ops::cross_entropy_backward over `group`, whose ranks together
// have all ids. Return the errors of the group.
absl::Status vocabulary_loss(Ops& ops, ProcessGroup& group, const LossShape& shape,
                             const SlicedLogits& rows, std::string_view name);
absl::Status vocabulary_loss_backward(Ops& ops, ProcessGroup& group, const LossShape& shape,
                                      const SlicedLogits& rows, std::string_view name);

}  // namespace muster::trainer
