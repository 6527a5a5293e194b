// The arguments of operations (attention_ops.inc, loss_ops.inc) for ranks that have only some
// positions of a sequence, some heads of a layer or some ids of the vocabulary.
// trainer_core/parallel combines the ranks' results into complete layers.
//
// The letters are those of ops.h, and: S' positions of every sequence, which are usually another
// rank's; V' of the vocabulary's V ids.
#pragma once

#include <cstdint>

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/attention_shape.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// The keys and values of qkv at some positions. `rows`: (B S', 2 K h), fp32 or bf16.
struct KeyValueBlock {
  Tensor rows;
  Positions positions;
};

// The result of attention over the blocks of keys so far. Always fp32, because the result of each
// block is merged into it.
struct AttentionSums {
  Tensor out;  // (T, H h)
  Tensor lse;  // (B, H, S); -1e30 for a row that has attended to no key so far
};

// The gradients to which a block of keys adds its part, fp32.
struct AttentionBlockGradients {
  Tensor dq;     // (T, H h)
  Tensor dkv;    // (B S', 2 K h)
  Tensor dbias;  // (H, buckets); no tensor if there are no buckets
};

// Number of sums per row of V' logits: the largest logit, the sum of exp(logit - largest), and the
// target's logit, which is 0 if another slice has the target.
constexpr int64_t kLogitSums = 3;

}  // namespace muster::trainer
