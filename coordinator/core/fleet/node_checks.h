// The consequences of a fault for its node, and when nodes are checked next. Functions of the
// node book and the fleet.
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
// Counts the job's newest fault against its node. The suspicion that follows, if any. Nothing for a
// lost worker: the loss itself is noted, since its job may have ended already.
std::optional<NodeSuspicion> suspicion_after(NodeBook& nodes, const Job& job);

// The next time at which an exclusion ends, a check is due or was not answered in time, or a failed
// one may be repeated for a job that waits (`jobs_wait`).
std::optional<Instant> next_check_of(const NodeBook& nodes, const Fleet& fleet, bool jobs_wait,
                                     Instant now);

}  // namespace muster::coordinator
