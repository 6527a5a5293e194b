// What is held against nodes, and their checks, as messages.
#pragma once

#include "coordinator/core/event.h"
#include "coordinator/core/fleet/exclusions.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// Exclusion, check and whether one is due; the rest of `proto` is left alone.
void node_to_proto(const NodeRecord& node, v1::WorkerInfo& proto);
// Of one that is not here.
v1::WorkerInfo absent_worker_to_proto(const NodeRecord& node);
NodeChecked node_checked_from_proto(const v1::NodeChecked& proto);
NodeExcludeRequested exclusion_from_proto(const v1::ExcludeWorkerRequest& proto);

}  // namespace muster::coordinator
