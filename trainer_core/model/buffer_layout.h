// The layout of a step's buffers. Pure arithmetic.
#pragma once

#include <cstdint>

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Adds every buffer of a step to `plan`. Requires that the model, batch, types and sharding of
// `plan` are set. `threads` is the number of threads of the CPU backend; `optimizer_state` is a
// number of fp32 elements.
void lay_out(TransformerPlan& plan, int32_t threads, int64_t optimizer_state);

}  // namespace muster::trainer
