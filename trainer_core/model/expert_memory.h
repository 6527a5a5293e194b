// The memory of layers with experts. Dimensions are those of ops/expert_ops.h: this rank's T tokens
// give R = T k rows for experts. R' is the maximum number of rows that the rank's own experts may
// receive from all ranks that split the experts; on a single rank R' = R.
//
// The plan must have room for any routing, so buffers have R' rows (received_rows_max). With an
// expert capacity, R' is close to an even share. Without a capacity, all tokens of all X ranks may
// choose experts of the same rank: R' = X R if a rank has at least k experts. The buffers of a
// layer's experts (gate_up and act) are then X times as large as on a single rank.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/remat.h"
#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// A tensor of a layer that must exist from its computation in the forward pass to its last use.
struct LayerTensor {
  const char* name;
  BufferId LayerBuffers::*id;
  int64_t elements;
  DType dtype;
  Placement placement;
};

// Returns the width of the buffers through which rows are exchanged, in elements of the activation
// type: the model's width, or that of fp32 gates if that is larger.
int64_t expert_staging_width(const TransformerPlan& plan);

// Returns the tensors that the router of a layer computes.
std::vector<LayerTensor> routing_tensors(const TransformerPlan& plan);
// Returns the tensors that the router and the experts of a layer compute, in order.
std::vector<LayerTensor> expert_tensors(const TransformerPlan& plan);

// Adds the offsets of the experts' rows and the inputs of the load-balancing loss, for each layer
// with experts. They are read after the forward pass.
void add_expert_counts(TransformerPlan& plan);
// Adds the workspace of experts, which all layers share.
void add_expert_work(TransformerPlan& plan);
// Adds the buffers of experts whose contents do not change from step to step.
void add_expert_constants(TransformerPlan& plan);

}  // namespace muster::trainer
