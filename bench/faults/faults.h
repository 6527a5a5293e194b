// Produces the faults of bench/faults in a rank. Each fault is real, not simulated: for example a
// thread that waits in a futex, or a process in D state.
#pragma once

#include "bench/faults/fault_orders.h"
#include "common/progress/progress_page.h"

namespace muster::faults {

// The action of a faulty rank in the collective that all ranks call after each step: it takes part
// like the others, skips the collective, or calls another one.
enum class Collective { kAsAll, kSkipped, kAnother };

// Injects `fault`; for most kinds, does not return. Returns what the rank does in the collective
// after the current step. For a slow rank, sets `slow_factor`, by which the rank multiplies its
// compute time from then on. Ends the process with a message if the kind is unknown.
Collective inject(const Fault& fault, ProgressWriter& page, double& slow_factor);

}  // namespace muster::faults
