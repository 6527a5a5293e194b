// The buffers of exchanges between ranks of a mesh during passes over the model, and their sizes.
// Pure arithmetic.
#pragma once

#include <cstdint>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Elements that a rank of a ring of `ranks` (parallel/ring_attention.h) needs beside a layer's
// tensors. `shape` is the rank's.
struct RingSizes {
  int64_t block = 0;      // in the activations' type: keys and values; there are two blocks
  int64_t sums = 0;       // fp32: the output so far; 0 with fp32 activations
  int64_t gradients = 0;  // fp32, backward only: of queries, and three of keys and values
  int64_t workspace = 0;  // the larger one of forward and backward
};
RingSizes ring_sizes(const AttentionShape& shape, DType dtype, int ranks, int threads);

// Adds the buffers in use while qkv or attention is computed; none for a rank that has the whole
// model.
void plan_attention_exchange(TransformerPlan& plan);
// Adds all other exchange buffers, after those of the computation.
void plan_exchange(TransformerPlan& plan);

// Returns the workspace of attention, forward, and for training plans also backward; not for
// decoding.
int64_t attention_elements(const TransformerPlan& plan, int32_t threads);

// Returns Routing::order for the rows gathered by the ranks that share sequences.
std::vector<int32_t> routed_order(const TransformerPlan& plan);

}  // namespace muster::trainer
