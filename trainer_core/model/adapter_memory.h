// The memory of adapters (base/lora.h) during a pass.
#pragma once

#include "trainer_core/model/transformer_plan.h"

namespace muster::trainer {

// Adds the buffers of TransformerPlan::adapters, and the adapters of a decoding plan.
void add_adapter_buffers(TransformerPlan& plan);

}  // namespace muster::trainer
