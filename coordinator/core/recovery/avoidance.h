// The nodes that one job avoids because of its own faults there, although the nodes are not
// excluded: a missing device or mount ends every rank that is started on its node. Pure functions
// of the job's record.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "common/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// As long as faults count against a node (kFaultsWindow), because a missing device or mount is not
// restored sooner. Doubles each time, up to the time that a repair takes.
constexpr Duration kAvoidedFor = std::chrono::hours(1);
constexpr Duration kAvoidedMax = std::chrono::hours(24);
// Idle nodes with a missing device accumulate among the spares. More than this many in a row cannot
// be a coincidence.
constexpr int32_t kUnfitNodesMax = 4;

// Returns whether `fault` shows that its node does not fit the job. Requires a fault that is not in
// the job's record yet and ends an attempt without a completed step. The job must have trained
// before, either on other nodes, or the rank had just ended in the same way on this node. After
// kUnfitNodesMax nodes in a row, or all `nodes_there` nodes of the fleet, the job itself cannot
// start.
bool is_of_unfit_node(const Job& job, const Fault& fault, int32_t nodes_there);
// Records that the current attempt has completed steps on its nodes, so these fit.
void note_training(Job& job);
// Adds `fault` as the newest of the job's faults, and drops old ones beyond the limit.
void keep_fault(Job& job, Fault fault);
// Returns the nodes that do not fit the job, and those on which it failed twice in a row in the
// same way without getting further: the node may be the cause, although it is not excluded. A node
// is avoided for kAvoidedFor, and an unfit node for longer if it fails again afterwards.
std::set<WorkerName> nodes_to_avoid(const Job& job, int64_t unix_ns);
// The newest fault was on an unfit node that the job avoided already, and had to use for lack of
// others.
bool was_avoided(const Job& job);
// Describes the consequence of the newest fault for its node; empty for none.
std::string avoidance_text(const Job& job);

}  // namespace muster::coordinator
