// Processes that SIGKILL does not end. A process that is blocked in the kernel (D state: a file
// system that is frozen or gone, a driver that does not respond) ends when the kernel releases it,
// which may be never. Its job does not wait for that:
//
//   ordered to stop ──grace──▶ SIGKILL ──reaped_within──▶ lost: the attempt ends without it
//                                        (torn_down_within while it runs: freeing much memory takes
//                                        time)
//
// The worker tracks the process until it ends, and then reports that. Until then the process
// occupies its slots, and no rank is placed on the node, because no other process can use a device
// that it holds open. After a coordinator restart the registration lists it again. Pure functions
// and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/save_progress.h"
#include "common/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/worker.h"

namespace muster::coordinator {

// The deadline for the ranks of a stopping attempt to end. Volatile.
struct KillDeadline {
  // The latest time of SIGKILL. Unset: the ranks were not ordered to stop.
  std::optional<Instant> killed_at;
  Instant next_check{};
  // The progress of the saves that killed_at is for. A new order to stop resets it, so that the
  // next page extends the deadline again, even if the saves have not changed.
  SaveProgress save;

  // Whether the order lets the workers wait for saves.
  bool waits_for_saves = false;

  // Starts the deadline: the ranks are ordered to stop now, with `grace` before SIGKILL. `waits`:
  // the order lets the workers wait for saves.
  void expect_ends(Duration grace, bool waits, const CoreOptions& options, Instant now);
  // Moves the deadline as the workers do, if they wait and the saves of the ranks have changed.
  void wait_for_saves(const SaveProgress& newest, Duration grace, const CoreOptions& options,
                      Instant now);
  // Runs a due check and schedules the next one. Returns whether processes may be unkillable by
  // now. `order_pending`: a quiet worker may receive the stop order only when it responds again.
  bool is_overdue(bool order_pending, const CoreOptions& options, Instant now);
  bool check_is_due(Instant now) const { return killed_at && next_check <= now; }
  void excuse(Duration time);
};

// Returns whether a connected worker that is quiet has ranks of the job.
bool is_order_pending(const Job& job, const RanksByWorker& ranks, const Fleet& fleet, Instant now);
// Returns the job's ranks on `worker` that SIGKILL should have ended. Empty if the worker has sent
// no message since then: the lease decides.
std::vector<RankId> unkillable_ranks(const Job& job, const RanksByWorker& ranks,
                                     const KillDeadline& deadline, const Worker& worker,
                                     const CoreOptions& options);
// Runs a due check of the deadline. Returns the job's ranks that SIGKILL should have ended, by
// worker.
std::vector<std::pair<WorkerName, std::vector<RankId>>> check_kill(
    const Job& job, const RanksByWorker& ranks, KillDeadline& deadline, const Fleet& fleet,
    const CoreOptions& options, Instant now);
// Returns the worker's orphans that should have ended and are not recorded as stuck. Restarts the
// wait while the worker is quiet.
std::vector<RankId> overdue_orphans(Worker& worker, const Fleet& fleet, const CoreOptions& options,
                                    Instant now);
// Returns the number of the current attempt's stuck ranks.
int64_t stuck_ranks_of(const Job& job, const Fleet& fleet);

// "rank 1 of job 3 and 2 more cannot be killed: 5 s after SIGKILL the process is there". Requires
// one.
std::string unkillable_text(const std::vector<RankId>& ranks, const CoreOptions& options);
// "node2 (stuck process: rank 1 of job 3 cannot be killed)". Requires a stuck rank.
std::string stuck_text(const Worker& worker);

}  // namespace muster::coordinator
