// The nodes that one job avoids because of its own faults there, although the nodes are not
// excluded for other jobs. Example: a missing device or mount ends every rank of the job on a node.
// Pure functions of the job's record.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "common/time/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The time for which a job avoids a node: as long as faults count against a node (kFaultsWindow),
// because a missing device or mount is seldom restored sooner. The time doubles after each further
// fault, up to kAvoidedMax, the usual time of a repair.
constexpr Duration kAvoidedFor = std::chrono::hours(1);
constexpr Duration kAvoidedMax = std::chrono::hours(24);
// The time for which a job avoids using two nodes together that could not reach each other. Most
// links are repaired by then; the time doubles as above.
constexpr Duration kPairAvoidedFor = std::chrono::minutes(10);
// The maximum number of unfit nodes in a row, because idle nodes with a missing device accumulate
// among the spares. If a job fails on more nodes in a row, the nodes are not the cause.
constexpr int32_t kUnfitNodesMax = 4;

// Returns whether `fault` shows that its node is unfit for the job. Requires that the fault is not
// in the job's record yet. A node is unfit if the end of the rank shows it (names_its_node()). It
// is also unfit if the attempt ended there without a completed step although the job has trained
// before, and one of these holds: the job trained on other nodes, the program does not exist there
// (exit codes 126 and 127), or the rank recently ended in the same way on this node. After
// kUnfitNodesMax unfit nodes in a row without progress, or as many as the fleet's `nodes_there`
// nodes, the job itself or a switch is the cause and the function returns false, unless the end
// reports failed hardware other than a link.
bool is_of_unfit_node(const Job& job, const Fault& fault, int32_t nodes_there);
// Records that the current attempt has completed a step on its nodes, so these nodes are fit for
// the job.
void note_training(Job& job);
// Adds `fault` as the newest of the job's faults, and drops an old one beyond kFaultsKeptMax.
void add_fault(Job& job, Fault fault);
// Returns the unfit nodes, and the nodes on which the job failed twice in a row in the same way
// without a further step, because such a node may be the cause although it is not excluded. A node
// is avoided for kAvoidedFor, and an unfit node that fails again afterwards for longer. Nodes whose
// links were down together are avoided for kAvoidedFor, and do not count as unfit. One of two
// nodes that could not reach each other within kPairAvoidedFor is avoided; for several such pairs,
// as few nodes as possible.
std::set<WorkerName> nodes_to_avoid(const Job& job, int64_t unix_ns);
// Returns the nodes whose links were down together within kAvoidedFor, perhaps by a failed switch.
std::set<WorkerName> nodes_without_link(const Job& job, int64_t unix_ns);
// Returns whether the newest fault occurred on an unfit node, or on two nodes without a link, that
// the job already avoided, and had to use because no other node was free.
bool was_avoided(const Job& job);
// Describes for how long the job avoids the node of its newest fault, or the two nodes together;
// empty if it does not.
std::string avoidance_text(const Job& job);

}  // namespace muster::coordinator
