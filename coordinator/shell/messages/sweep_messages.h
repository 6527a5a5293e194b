// Conversions of deep checks and sweeps between the core's values and messages.
#pragma once

#include "coordinator/core/action.h"
#include "coordinator/core/event.h"
#include "coordinator/core/sweep/check_history.h"
#include "coordinator/core/sweep/sweep.h"
#include "muster/v1/muster.pb.h"

namespace muster::coordinator {

// Nodes in a NodeSweep; failed ones come first.
constexpr size_t kSweptNodesListed = 1'000;

void check_order_to_proto(const SendCheckNode& order, v1::CheckNode& proto);
// Bounds the list, and drops measurements whose name, unit or value is not valid.
DeepCheckFigures figures_from_proto(const v1::DeepCheckResult& proto);
NodeSweepRequested sweep_request_from_proto(const v1::CheckNodesRequest& proto);
v1::DeepCheck deep_check_to_proto(const DeepCheckRecord& record);
v1::NodeSweep sweep_to_proto(const Sweep& sweep);

}  // namespace muster::coordinator
