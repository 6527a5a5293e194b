// Processes that SIGKILL does not end: one that waits in the kernel (D state: a file system that is
// frozen or gone, a driver that does not answer) ends when the kernel releases it, which may be
// never. Its job does not wait for that:
//
//   ordered to stop ──grace──▶ SIGKILL ──reaped_within──▶ lost there: the attempt ends without it
//                                        (torn_down_within while it runs: to free much memory takes
//                                        time)
//
// The worker has the process until it ends, and reports the end. Until then it holds its slots, and
// no rank is placed on the node: a device that such a process has open is of no use to another one.
// After a restart of the coordinator the registration lists it again. Pure functions and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/worker.h"

namespace muster::coordinator {

// When the ranks of a stopping attempt must have ended. Volatile.
struct KillDeadline {
  // SIGKILL at the latest. Unset: the ranks were not ordered to stop.
  std::optional<Instant> killed_at;
  Instant next_check{};

  // The ranks are ordered to stop now, with `grace` before SIGKILL.
  void expect_ends(Duration grace, const CoreOptions& options, Instant now);
  // A check is due; plans the next one. `order_pending`: a quiet worker may receive the order only
  // when it responds again. True: processes may be unkillable by now.
  bool is_overdue(bool order_pending, const CoreOptions& options, Instant now);
  bool check_is_due(Instant now) const { return killed_at && next_check <= now; }
  void excuse(Duration time);
};

// A connected worker that is quiet has ranks of the job.
bool is_order_pending(const Job& job, const RanksByWorker& ranks, const Fleet& fleet, Instant now);
// The job's ranks on `worker` that a SIGKILL should have ended. Only of a worker that sent messages
// since; for others the lease decides.
std::vector<RankId> unkillable_ranks(const Job& job, const RanksByWorker& ranks,
                                     const KillDeadline& deadline, const Worker& worker,
                                     const CoreOptions& options);
// The worker's orphans that should have ended, and are not known as stuck. Waits anew while the
// worker is quiet.
std::vector<RankId> overdue_orphans(Worker& worker, const Fleet& fleet, const CoreOptions& options,
                                    Instant now);
// How many of the current attempt's ranks are stuck.
int64_t stuck_ranks_of(const Job& job, const Fleet& fleet);

// "rank 1 of job 3 and 2 more cannot be killed: 5 s after SIGKILL the process is there". Requires
// one.
std::string unkillable_text(const std::vector<RankId>& ranks, const CoreOptions& options);
// "node2 (stuck process: rank 1 of job 3 cannot be killed)". Requires a stuck rank.
std::string stuck_text(const Worker& worker);

}  // namespace muster::coordinator
