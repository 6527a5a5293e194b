// Processes that SIGKILL does not end. A process that is blocked in the kernel (D state: a file
// system that is frozen or gone, a driver that does not respond) ends only when the kernel releases
// it, perhaps never. The job does not wait for the process:
//
//   ordered to stop ──grace──▶ SIGKILL ──reaped_within──▶ lost: the attempt ends without it
//                                        (torn_down_within while it runs: freeing much memory takes
//                                        time)
//
// The worker tracks the process until it ends, and then reports the end. Until then the process
// occupies its slots, and no rank is placed on the node, because no other process can use a device
// that the process has open. After a coordinator restart the worker's registration lists the
// process again. Pure functions and values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/progress/save_progress.h"
#include "common/time/time.h"
#include "coordinator/core/core_options.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/worker.h"

namespace muster::coordinator {

// The deadline for the ranks of a stopping attempt to end. Volatile.
struct KillDeadline {
  // The latest time of SIGKILL. Unset: the ranks were not ordered to stop. Moves while a worker may
  // not have received the order.
  std::optional<Instant> killed_at;
  Instant first_killed_at{};  // killed_at as of the order
  Instant next_check{};
  Instant ordered_at{};
  // The progress of the saves for which killed_at was last extended. A new order to stop resets it,
  // so that the next page extends the deadline even if the saves have not changed.
  SaveProgress save;

  // Whether the order to stop permits the workers to wait for saves.
  bool waits_for_saves = false;

  // Starts the deadline for ranks that are ordered to stop now, with `grace` before SIGKILL.
  // `waits`: the order permits the workers to wait for saves.
  void expect_ends(Duration grace, bool waits, const CoreOptions& options, Instant now);
  // Extends the deadline by the workers' rule (common/progress/save_progress.h), if the workers
  // wait for saves and the progress of the saves has changed.
  void extend_for_saves(const SaveProgress& newest, Duration grace, const CoreOptions& options,
                        Instant now);
  // Runs a due check and schedules the next one. Returns whether processes that still exist may be
  // unkillable. `order_pending`: a quiet worker may not have received the order to stop yet.
  bool is_overdue(bool order_pending, const CoreOptions& options, Instant now);
  bool check_is_due(Instant now) const { return killed_at && next_check <= now; }
  // Excludes the part of `time`, which ends at `now`, that follows the order.
  void excuse(Duration time, Instant now);
};

// Returns whether a connected worker that is quiet has ranks of the job.
bool is_order_pending(const Job& job, const RanksByWorker& ranks, const Fleet& fleet, Instant now);
// Returns the job's ranks on `worker` that SIGKILL should have ended. Returns no rank if the worker
// has sent no message since SIGKILL: its lease decides.
std::vector<RankId> unkillable_ranks(const Job& job, const RanksByWorker& ranks,
                                     const KillDeadline& deadline, const Worker& worker,
                                     const CoreOptions& options);
// Runs the deadline's check if it is due. Returns the job's ranks that SIGKILL should have ended,
// by worker.
std::vector<std::pair<WorkerName, std::vector<RankId>>> check_kill(
    const Job& job, const RanksByWorker& ranks, KillDeadline& deadline, const Fleet& fleet,
    const CoreOptions& options, Instant now);
// Returns the worker's orphans that should have ended and are not recorded as stuck. Restarts the
// wait while the worker is quiet.
std::vector<RankId> overdue_orphans(Worker& worker, const Fleet& fleet, const CoreOptions& options,
                                    Instant now);
// Returns the number of the current attempt's stuck ranks.
int64_t stuck_ranks_of(const Job& job, const Fleet& fleet);

// Returns "rank 1 of job 3 and 2 more cannot be killed: 5 s after SIGKILL the process is there".
// Requires at least one rank.
std::string unkillable_text(const std::vector<RankId>& ranks, const CoreOptions& options);
// Returns "node2 (stuck process: rank 1 of job 3 cannot be killed)". Requires a stuck rank.
std::string stuck_text(const Worker& worker);

}  // namespace muster::coordinator
