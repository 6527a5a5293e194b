// The memory of layers with experts. Dimensions as in ops/expert_ops.h: R = T k rows of this rank's
// tokens for experts, R' rows that its own experts may receive from all ranks that split the
// experts; on one rank R' is R.
//
// R' is the maximum (received_rows_max), so that the plan covers any routing. With a capacity it is
// close to an even share. Without one, every token of all X ranks may choose one rank's experts: R'
// = X R if a rank has at least k experts. The buffers of a layer's experts (gate_up and act) are
// then X times as large as on a single rank.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/remat.h"
#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// A tensor of a layer, live from its computation in the forward pass to its last use.
struct LayerTensor {
  const char* name;
  BufferId LayerBuffers::*id;
  int64_t elements;
  DType dtype;
  Placement placement;
};

// Returns the width of exchanged rows: the model's, or that of fp32 gates if larger.
int64_t expert_staging_width(const TransformerPlan& plan);

// Returns the tensors that the router of a layer computes.
std::vector<LayerTensor> routing_tensors(const TransformerPlan& plan);
// Returns the tensors that the router and its experts compute, in order.
std::vector<LayerTensor> expert_tensors(const TransformerPlan& plan);

// Adds, for each layer with experts, the offsets of the experts' rows and the inputs of the balance
// loss, which are read after the forward pass.
void add_expert_counts(TransformerPlan& plan);
// Adds the buffers that layers share during their experts' work.
void add_expert_work(TransformerPlan& plan);
// Adds the buffers that keep their contents from step to step.
void add_expert_constants(TransformerPlan& plan);

}  // namespace muster::trainer
