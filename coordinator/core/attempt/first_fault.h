// Finds the rank that caused a fault of which ranks have reported only consequences, such as a
// closed connection. Pure.
#pragma once

#include <cstdint>

#include "coordinator/core/incident/crash_evidence.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the fault of an attempt in which ranks of a program have ended by a known consequence of
// another rank's fault, and no rank with a fault of its own. The suspect is, in this order,
//
//   1. a rank that had exited with code 0 when the first consequence was reported, and most ranks
//      had not
//   2. the only member of a group, all of which have ended, whose page shows another last
//      collective than all others, or, in a group of two, more steps with no more collectives; but
//      not if there is an only rank that has not ended
//   3. the node whose network link is down (lost_link.h)
//   4. the only rank that has not ended
//   5. the only rank that has completed fewer steps than the equal number of all others
//   6. the rank that reported first
//
// `crash` has the pages of ended ranks. Requires an exit for which is_witness() is true.
Fault fault_of_witnesses(const Job& job, const CrashEvidence& crash, int64_t unix_ns);

}  // namespace muster::coordinator
