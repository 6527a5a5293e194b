// The faults that a rank can be ordered to have. Each is the real thing: a thread that waits in a futex, a process in D state.
#pragma once

#include "bench/faults/fault_orders.h"
#include "common/progress_page.h"

namespace muster::faults {

// Of the collective that all ranks make after each step, what this rank does instead.
enum class Collective { kAsAll, kSkipped, kAnother };

// Does what `fault` says: mostly it does not return. What it returns is for the step's collective; a rank that was made slow takes
// `slow_factor` times its time from then on. Ends the process with a message when the kind is unknown.
Collective commit(const Fault& fault, ProgressWriter& page, double& slow_factor);

}  // namespace muster::faults
