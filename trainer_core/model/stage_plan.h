// What a pipeline stage adds to a plan: slots for the activations of several micro-batches, and what goes between stages. A rank that
// has all layers has one slot, and sends nothing. Pure arithmetic.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// The layers whose tensors take turns in plan.layers[i]: one of each chunk.
std::vector<size_t> layers_at(const TransformerPlan& plan, size_t i);
bool has_experts_at(const TransformerPlan& plan, size_t i);
bool has_experts(const TransformerPlan& plan);  // in any of them
// Of its buffers: "layer3.", in one of several slots "slot1.layer3.".
std::string name_at(const TransformerPlan& plan, size_t i);

// Adds plan.stage.
void plan_stage(TransformerPlan& plan);

}  // namespace muster::trainer
