// Which nodes a job avoids because of what happened to it there, though nothing is known against
// them: a device or a mount that is gone ends whatever is started on its node. Pure functions of
// the job's record.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>

#include "common/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// As long as faults count against a node (kFaultsWindow): a device or a mount that is gone is no
// sooner back. Each further time it is twice as long, up to what a repair takes.
constexpr Duration kAvoidedFor = std::chrono::hours(1);
constexpr Duration kAvoidedMax = std::chrono::hours(24);
// Idle nodes with a device that is gone gather among the spares; more of them one after the other
// are no chance any more.
constexpr int32_t kUnfitNodesMax = 4;

// Whether `fault`, which is not in the job's record yet and ends an attempt that has completed no
// step, shows that its node does not fit the job: the job has trained, and either elsewhere, or the
// rank had just ended in the same way there. After kUnfitNodesMax nodes in a row, or all
// `nodes_there` that the fleet has, it is the job that cannot start.
bool is_of_unfit_node(const Job& job, const Fault& fault, int32_t nodes_there);
// The current attempt has completed steps where it is: those nodes fit.
void note_training(Job& job);
// As the newest of the job's faults, of which some are forgotten.
void keep_fault(Job& job, Fault fault);
// Nodes that do not fit the job, and those on which it failed twice in a row in one way and got no
// further in between: the node may be what is wrong, though nothing is known against it. For
// kAvoidedFor, and an unfit node for longer when it comes again after that.
std::set<WorkerName> nodes_to_avoid(const Job& job, int64_t unix_ns);
// The newest fault was on an unfit node that the job avoided already, having no other.
bool was_avoided(const Job& job);
// The consequence of the newest fault for its node; empty for none.
std::string avoidance_text(const Job& job);

}  // namespace muster::coordinator
