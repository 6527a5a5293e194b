// The additions of a pipeline stage to a plan: slots for the activations of several micro-batches,
// and the messages between stages. A rank that has all layers has one slot and no messages. Pure
// arithmetic.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Returns the layers whose tensors use plan.layers[i] one after another: one of each chunk.
std::vector<size_t> layers_at(const TransformerPlan& plan, size_t i);
bool has_experts_at(const TransformerPlan& plan, size_t i);
// Whether any layer has experts.
bool has_experts(const TransformerPlan& plan);
// The prefix of the buffers' names: "layer3.", or with several slots "slot1.layer3.".
std::string name_at(const TransformerPlan& plan, size_t i);

// Adds plan.stage.
void plan_stage(TransformerPlan& plan);

}  // namespace muster::trainer
