// What layers with experts have of a step's memory. Letters are ops/expert_ops.h's: R = T k rows in which this rank's tokens go to
// experts, R' rows that its own experts may see, of all ranks that share the experts out; on one rank R' is R.
//
// R' is the most that can come (received_rows_max), so that the plan is the allocation whatever routers do. With a capacity that is near
// an even share. Without one every token of all X ranks may choose one rank's experts: R' = X R where a rank has at least k experts,
// and then what a layer keeps of its experts (gate_up and act) is X times what one rank alone keeps of its own tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer_core/base/memory_plan.h"
#include "trainer_core/base/remat.h"
#include "trainer_core/ops/expert_ops.h"

namespace muster::trainer {

struct LayerBuffers;
struct TransformerPlan;

// Of a layer, from where it is made in the forward pass to where it is read last.
struct LayerTensor {
  const char* name;
  BufferId LayerBuffers::*id;
  int64_t elements;
  DType dtype;
  Placement placement;
};

// What ranks that share experts out exchange; X of them. Rows are those of one layer at a time.
struct ExpertExchangeBuffers {
  BufferId staging;        // (R', d) rows by rank, before or after they lie by expert
  BufferId rows_in_order;  // (R') int32: 0, 1, …
  BufferId gate_rows;      // (R) training: gates, and then their gradients, by expert
  BufferId gates;          // (R') training: of the own experts' rows
  BufferId d_gates;        // (R') training
};

// The most rows that a rank can receive of `ranks` that share experts out. `shape` is a rank's routing, of which all have the like.
int64_t received_rows_max(const RoutingShape& shape, int ranks);

// Of the rows that are exchanged: the model's, or gates, which are fp32 in any case.
int64_t expert_staging_width(const TransformerPlan& plan);

// What the router of a layer makes.
std::vector<LayerTensor> routing_tensors(const TransformerPlan& plan);
// What it and its experts make, in order.
std::vector<LayerTensor> expert_tensors(const TransformerPlan& plan);

// What a layer's sums are made from after the step's forward pass, and what says which row is whose.
void add_expert_counts(TransformerPlan& plan);
// What layers share while they are at their experts.
void add_expert_work(TransformerPlan& plan);
// What stays from step to step.
void add_expert_constants(TransformerPlan& plan);

}  // namespace muster::trainer
