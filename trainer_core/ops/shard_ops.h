// The arguments of operations of ranks that have only some positions of a sequence, some heads of a
// layer or some ids of the vocabulary (attention_ops.inc, loss_ops.inc). trainer_core/parallel
// combines the results into complete layers.
//
// Letters: as in ops.h; S' positions of every sequence, usually another rank's, V' of V ids.
#pragma once

#include <cstdint>

#include "trainer_core/base/tensor.h"
#include "trainer_core/ops/attention_shape.h"
#include "trainer_core/ops/op_arguments.h"

namespace muster::trainer {

// Rows (B S', 2 K h): the keys and values of qkv at these positions. fp32 or bf16.
struct KeyValueBlock {
  Tensor rows;
  Positions positions;
};

// Attention over the keys so far. Always fp32, because each block of keys adds to it.
struct AttentionSums {
  Tensor out;  // (T, H h)
  Tensor lse;  // (B, H, S); -1e30 of a row that has seen no key
};

// The gradients that a block of keys contributes, fp32.
struct AttentionBlockGradients {
  Tensor dq;     // (T, H h)
  Tensor dkv;    // (B S', 2 K h)
  Tensor dbias;  // (H, buckets), no tensor without buckets
};

// Statistics of a row's V' logits: the largest, the sum of exp(logit - largest), and the target's
// logit, or 0 if another slice has the target.
constexpr int64_t kLogitSums = 3;

}  // namespace muster::trainer
