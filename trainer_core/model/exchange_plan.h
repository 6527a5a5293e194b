// The buffers of what ranks of a mesh exchange while they pass over the model, and their sizes. Pure arithmetic.
#pragma once

#include <cstdint>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Elements of what a rank of a ring of `ranks` (parallel/ring_attention.h) needs beside a layer's tensors. `shape` is the rank's.
struct RingSizes {
  int64_t block = 0;      // of the activations' type: keys and values; there are two
  int64_t sums = 0;       // fp32: the output so far; none with activations of fp32
  int64_t gradients = 0;  // fp32, backward alone: of queries, and three of keys and values
  int64_t workspace = 0;  // of either direction
};
RingSizes ring_sizes(const AttentionShape& shape, DType dtype, int ranks, int threads);

// Adds what is in use while qkv is made, or attention. A rank that has all of the model adds nothing.
void plan_attention_exchange(TransformerPlan& plan);
// Adds all else, to a plan that has what it computes itself.
void plan_exchange(TransformerPlan& plan);

// Workspace of attention, forward and of training plans backward; not of decoding ones.
int64_t attention_elements(const TransformerPlan& plan, int32_t threads);

// Routing::order of the rows that the ranks which share sequences gather.
std::vector<int32_t> routed_order(const TransformerPlan& plan);

}  // namespace muster::trainer
