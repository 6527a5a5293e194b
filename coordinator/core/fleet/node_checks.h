// The consequences of a fault for its node, and the times of node checks. Functions of the node
// book and the fleet.
#pragma once

#include <optional>
#include <string>

#include "common/time.h"
#include "coordinator/core/fleet/exclusions.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct NodeSuspicion {
  Suspicion suspicion{};
  // A clause.
  std::string reason;
};
// Counts the job's newest fault against its node. Returns the resulting suspicion, if any. Returns
// none for a lost worker: its loss is recorded separately, because its job may have ended already.
std::optional<NodeSuspicion> suspicion_after(NodeBook& nodes, const Job& job);

// Returns the next time at which an exclusion ends, a check is due or expires, or a failed check
// may be repeated for a waiting job (`jobs_wait`).
std::optional<Instant> next_check_of(const NodeBook& nodes, const Fleet& fleet, bool jobs_wait,
                                     Instant now);

}  // namespace muster::coordinator
