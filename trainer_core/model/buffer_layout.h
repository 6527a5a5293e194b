// Lays out the buffers of a step. Pure arithmetic.
#pragma once

#include <cstdint>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Adds every buffer of the step to `plan`. Requires: its model, batch, types and sharding are set.
// `threads` is the CPU backend's; `optimizer_state` is in fp32 elements.
void lay_out(TransformerPlan& plan, int32_t threads, int64_t optimizer_state);

}  // namespace muster::trainer
