// Produces the faults of bench/faults in a rank. Each fault is real, not simulated: for example a
// thread that waits in a futex, or a process in D state.
#pragma once

#include "bench/faults/fault_orders.h"
#include "common/progress/progress_page.h"

namespace muster::faults {

// The participation of a faulty rank in the collective that all ranks call after each step: like
// all ranks, not at all, or with another collective.
enum class Collective { kAsAll, kSkipped, kAnother };

// Produces `fault`; for most kinds, does not return. Returns the participation in the current
// step's collective. For a slow rank, sets `slow_factor`, by which the rank multiplies its compute
// time from then on. Ends the process with a message if the kind is unknown.
Collective commit(const Fault& fault, ProgressWriter& page, double& slow_factor);

}  // namespace muster::faults
