// Decides whether a job leaves its slow nodes at a checkpoint, and what that has gained. Pure
// functions of the job's record.
#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The time for which a job avoids a slow node, and for which it stays where it is after a move that
// was in vain.
constexpr Duration kSlowAvoidedFor = std::chrono::hours(24);
// A job that leaves more nodes within this time has another cause.
constexpr size_t kSlowMovesMax = 8;

// Returns the confirmed slow nodes on which the job has ranks, in the order of their confirmation.
std::vector<const SlowNode*> slow_nodes_in_use(const Job& job);
// Returns the nodes to avoid because they are slow.
std::set<WorkerName> slow_nodes_to_avoid(const Job& job, int64_t unix_ns);
// Returns why the job may not leave its slow nodes now, as a clause; "" if it may.
std::string_view why_no_move(const Job& job, int64_t unix_ns);

// The time that a move costs and what it gains.
struct MoveEstimate {
  Duration cost{};
  Duration gain{};

  bool pays() const;
};
// Estimates the move of the job off its slow nodes. `newest_step`: completed steps. `trained`: the
// time for which the job has trained; a program whose number of steps is not known counts as half
// done. `start`: the time from the start of the attempt to its first step.
MoveEstimate estimate_move(const Job& job, int64_t newest_step, Duration trained, Duration start);

// Adds a confirmed node, or renews it, and drops the oldest ones beyond kSlowNodesKeptMax.
void add_slow_node(Job& job, SlowNode node);
void forget_slow_node(Job& job, const WorkerName& worker);
// Returns whether the newest fault has ended the attempt so that the job leaves a slow node.
bool has_left_slow_node(const Job& job);
// Records the effect of leaving `node`. `step_seconds`: the median step of an attempt on `nodes`
// nodes without it. Returns the sentence for its incident.
std::string measure_move(SlowNode& node, int32_t nodes, double step_seconds);

}  // namespace muster::coordinator
