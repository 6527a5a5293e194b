// The buffers for exchanges between the ranks of a mesh during a pass over the model
// (model_exchange.h), and their sizes. Pure arithmetic.
#pragma once

#include <cstdint>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// The numbers of elements that ring attention (parallel/ring_attention.h) needs on a rank, in
// addition to the tensors of the layer.
struct RingSizes {
  int64_t block = 0;      // activation type: keys and values; there are two such buffers
  int64_t sums = 0;       // fp32: output summed so far; 0 with fp32 activations
  int64_t gradients = 0;  // fp32, backward only: one of queries, three of keys and values
  int64_t workspace = 0;  // the maximum of forward and, in training, backward
};
// Returns the sizes for a ring of `ranks` ranks. `shape` has the positions and heads of this rank;
// `threads` is the number of threads of the CPU backend. Without `training` there is no backward
// pass.
RingSizes ring_sizes(const AttentionShape& shape, DType dtype, int ranks, int threads,
                     bool training);

// Adds the buffers that exchanges use while qkv or attention is computed. Adds none for a rank that
// has the complete model.
void plan_attention_exchange(TransformerPlan& plan);
// Adds all other exchange buffers, after the buffers of the computation.
void plan_exchange(TransformerPlan& plan);

// Returns the fp32 elements of the workspace of attention: the maximum of forward and, in training
// plans, backward. Not for plans of decoding.
int64_t attention_elements(const TransformerPlan& plan, int32_t threads);

// Returns Routing::order for rows that are gathered from the ranks with the same sequences.
std::vector<int32_t> routed_order(const TransformerPlan& plan);

}  // namespace muster::trainer
