// The memory of frozen parameters, and of adapters (base/lora.h) during a pass.
#pragma once

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Adds the flat blocks of frozen parameters; none if all are trained.
void add_frozen_blocks(TransformerPlan& plan);
// Adds the buffers of TransformerPlan::adapters, and the adapters of a decoding plan. None for a
// model without adapters.
void add_adapter_buffers(TransformerPlan& plan);

}  // namespace muster::trainer
