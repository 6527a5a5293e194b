// Who made a step's numbers infinite or NaN.
#pragma once

#include <functional>
#include <string>

#include "trainer_core/comm/comm.h"
#include "trainer_core/step_tail.h"

namespace muster::trainer {

// Names the origin of a loss or a gradient norm that is not finite: "the loss of rank 3", "the gradient of rank 3".
// `reduced` is the step's tail after its all-reduce, the same on all ranks. Losses are named from it alone; gradients
// are mixed by then, so each rank computes its own again: `own_gradient_norm` repeats the step's forward and backward
// pass. Every rank of `group` calls this, and gets the same sentence; a peer that is gone leaves the origin unnamed.
std::string name_not_finite(ProcessGroup& group, const StepTail& reduced,
                            const std::function<double()>& own_gradient_norm);

}  // namespace muster::trainer
