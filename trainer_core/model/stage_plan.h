// The additions of a pipeline stage to a plan: the activations of several micro-batches, each set
// of which is called a slot, and the buffers of messages between stages. A rank that has all layers
// has one slot and no messages. Pure arithmetic.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Returns the layers whose activations use plan.layers[i], one after the other: one layer of each
// chunk.
std::vector<size_t> layers_at(const TransformerPlan& plan, size_t i);
// Returns whether one of these layers has experts.
bool has_experts_at(const TransformerPlan& plan, size_t i);
// Returns whether any layer of the plan has experts.
bool has_experts(const TransformerPlan& plan);
// Returns the prefix of the names of the buffers of plan.layers[i]: "layer3." or, with several
// slots, "slot1.layer3.".
std::string name_at(const TransformerPlan& plan, size_t i);

// Sets plan.stage and adds the buffers of messages to the plan.
void plan_stage(TransformerPlan& plan);

}  // namespace muster::trainer
