// The faults that follow from the ends of ranks, with their sentences for users. Pure functions of
// the job's record.
#pragma once

#include <cstdint>

#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// Returns the fault for a rank's exit, with the message "rank 2 on node7 was killed by signal 9
// (SIGKILL) after 17 steps: <detail>".
Fault fault_of(const RankExit& exit, const WorkerName& worker, int64_t unix_ns);

// Returns the fault of an attempt in which ranks have lost a peer although no rank has died. A rank
// that finished too early is to blame, or the only rank that has not reported a loss; otherwise no
// rank is to blame, and the message lists the ranks that have not reported a loss.
Fault fault_without_culprit(const Job& job, int64_t unix_ns);

}  // namespace muster::coordinator
