// Converts exclusions and checks of nodes to and from messages.
#pragma once

#include "coordinator/core/event.h"
#include "coordinator/core/fleet/exclusions.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// Writes the node's exclusion, its last check, and whether a check is due. Leaves the other fields
// unchanged.
void node_to_proto(const NodeRecord& node, v1::WorkerInfo& proto);
// Returns the message for a node with a record whose worker is not registered.
v1::WorkerInfo absent_worker_to_proto(const NodeRecord& node);
NodeChecked node_checked_from_proto(const v1::NodeChecked& proto);
NodeExcludeRequested exclusion_from_proto(const v1::ExcludeWorkerRequest& proto);

}  // namespace muster::coordinator
