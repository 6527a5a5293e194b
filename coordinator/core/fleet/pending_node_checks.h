// Node checks, and the consequences of faults for nodes: when a check is requested, its result, and
// the faults that exclude a node. Changes the NodeBook and the check state of workers. Pure; called
// on one thread at a time.
//
//   suspected, and the rule needs a check ──▶ requested ──answered, or kCheckDeadline──▶ concluded
//   exclusion over, or worker lost ─────────────▲
//   a job has no other node ────────────────────┘
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/time/time.h"
#include "coordinator/core/action.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// A suspicion against a node, with its reason.
struct NodeSuspicion {
  Suspicion suspicion{};
  // The reason of the suspicion, as a clause.
  std::string reason;
};
// Counts the job's newest fault against its node. Returns the resulting suspicion, if any. Returns
// nullopt for a lost worker, whose loss is recorded separately because the job may have ended
// already.
std::optional<NodeSuspicion> suspicion_after(NodeBook& nodes, const Job& job);

class PendingNodeChecks {
 public:
  // Requests a check of the worker's node, unless one is pending or the worker cannot answer.
  ActionList request(Worker& worker, Instant now);
  // Excludes the node and requests the check that the exclusion requires. Returns an empty list if
  // the node's record does not change.
  ActionList suspect(NodeBook& nodes, Fleet& fleet, const WorkerName& name, NodeSuspicion suspicion,
                     Instant now);
  // Ends the checks that were not answered in time as failed, and requests the checks that are due.
  ActionList run_due(NodeBook& nodes, Fleet& fleet, Instant now);

 private:
  uint64_t last_ = 0;
};

// Records the result of the worker's check. A failed check excludes the node.
ActionList conclude_check(NodeBook& nodes, Worker& worker, NodeCheckResult result, Instant now);

// Returns the next time at which an exclusion ends, a check is due or expires, or a failed check
// may be repeated for a waiting job (`jobs_wait`).
std::optional<Instant> next_check_of(const NodeBook& nodes, const Fleet& fleet, bool jobs_wait,
                                     Instant now);

}  // namespace muster::coordinator
