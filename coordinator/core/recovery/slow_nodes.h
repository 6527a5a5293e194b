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

// The number of moves within kSlowAvoidedFor after which the job stays where it is.
constexpr size_t kSlowMovesMax = 8;

// Returns the nodes to use last because they are slow.
std::set<WorkerName> slow_nodes_to_avoid(const Job& job, int64_t unix_ns);
// Returns why the job may not leave the nodes `slow` now, as a clause; "" if it may.
std::string_view why_stays(const Job& job, const std::vector<SlowNode>& slow, int64_t unix_ns);

// The time that a move costs and what it gains.
struct MoveEstimate {
  Duration cost{};
  Duration gain{};

  bool pays() const;
};
// Estimates the move of the job off the nodes `slow`. `newest_step`: completed steps. `trained`:
// the time for which the job has trained; a program whose number of steps is not known counts as
// half done. `start`: the time from the start of the attempt to its first step.
MoveEstimate estimate_move(const Job& job, const std::vector<SlowNode>& slow, int64_t newest_step,
                           Duration trained, Duration start);

// Returns whether the record has room for another confirmed node.
bool has_room_for_slow_node(const Job& job);
// Adds a confirmed node, and drops the oldest measured one beyond kSlowNodesKeptMax. Requires
// has_room_for_slow_node().
void add_slow_node(Job& job, SlowNode node);
// Returns the record of the confirmed node whose effect is not measured yet; null if there is none.
SlowNode* find_slow_node(Job& job, const WorkerName& worker);
// Removes the record of a node that is not measured yet.
void forget_slow_node(Job& job, const WorkerName& worker);
// Returns whether the newest fault has ended the attempt so that the job leaves a slow node.
bool has_left_slow_node(const Job& job);
// Records the effect of leaving `node`. `step_seconds`: the median step of the job's present
// attempt without it. Returns the sentence for its incident.
std::string measure_move(const Job& job, SlowNode& node, double step_seconds);

}  // namespace muster::coordinator
