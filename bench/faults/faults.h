// The faults that a rank can be ordered to have. Each is real: a thread that waits in a futex, a
// process in D state.
#pragma once

#include "bench/faults/fault_orders.h"
#include "common/progress_page.h"

namespace muster::faults {

// The action of this rank in place of the collective that all ranks make after each step.
enum class Collective { kAsAll, kSkipped, kAnother };

// Executes `fault`; most do not return. The return value applies to the step's collective. A rank
// that was made slow takes `slow_factor` times its normal time from then on. Ends the process with
// a message for an unknown kind.
Collective commit(const Fault& fault, ProgressWriter& page, double& slow_factor);

}  // namespace muster::faults
