// Assigns a job's ranks to workers, and selects workers to reserve for it. Pure: equal inputs give
// equal placements.
//
// All ranks are placed or none (gang placement). Ranks are contiguous on each host, as in
// common/mesh.h: rank = node_index * ranks_per_node + local_rank.
//
// A node that had ranks of the job, and is available again, gets the same ranks: the data in its
// memory (page cache, local checkpoints) belongs to them. A replacement node gets the ranks of the
// lost node. Replacements are chosen in this order: nodes that had other ranks of the job, nodes
// reserved for it, unreserved nodes, nodes reserved for a job behind it in the queue. Equal nodes
// are ordered by comes_before(): nodes under one switch are adjacent, and neighbours in a rack
// usually have consecutive numbers.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

struct Host {
  WorkerName name;
  Incarnation incarnation;
  int32_t slots = 0;
  int32_t slots_free = 0;
  bool held = false;     // reserved for some job
  std::string switches;  // as in WorkerRegistered
  int32_t gpus = 0;
  int32_t gpus_free = 0;
};

// The part of a worker that is not free.
struct NodeUse {
  int32_t slots = 0;
  int32_t gpus = 0;

  NodeUse& operator+=(const NodeUse& other) {
    slots += other.slots;
    gpus += other.gpus;
    return *this;
  }
  NodeUse& operator-=(const NodeUse& other) {
    slots -= other.slots;
    gpus -= other.gpus;
    return *this;
  }
};
using NodeUses = std::map<WorkerName, NodeUse>;

// Orders hosts by switches, and under one switch by name, both in natural order.
bool comes_before(const Host& a, const Host& b);

// The requirements of one job, with its former nodes.
struct PlacementRequest {
  int32_t ranks_per_node = 1;
  std::vector<WorkerName> previous;  // former nodes by their ranks
  std::vector<WorkerName> held;      // reserved for the job
  // Nodes to avoid: never reserved for the job, and chosen last.
  std::set<WorkerName> avoid{};
  int32_t gpus_per_rank = 0;  // exclusively assigned: a number, or kGpusOfSlot

  int32_t gpus_of(const Host& host) const {
    return ranks_per_node * gpus_of_rank(gpus_per_rank, host.gpus, host.slots);
  }
  bool has_room(const Host& host) const {
    const int32_t gpus = gpus_of(host);
    return host.slots_free >= ranks_per_node && (gpus == 0 || host.gpus_free >= gpus);
  }
  // Returns whether the host would have room if it were empty.
  bool would_have_room(const Host& host) const {
    return host.slots >= ranks_per_node && host.gpus >= gpus_of(host);
  }
};

enum class Fit {
  kNow,    // placed
  kLater,  // enough workers are connected, but they are busy
  kNever,  // impossible until more or larger workers register
};

struct Placement {
  Fit fit = Fit::kNever;
  std::vector<RankPlacement> ranks;  // by rank; empty unless kNow
};

// Places the ranks of a job on `nodes` nodes. Requires, like the functions below, that `hosts` are
// in the order of comes_before().
Placement place(const PlacementRequest& request, int32_t nodes, const std::vector<Host>& hosts);

// Returns the number of nodes on which there is room now.
int32_t nodes_free(const PlacementRequest& request, const std::vector<Host>& hosts);

// Returns at most `count` workers to reserve for a job that runs on request.previous, in the order
// in which they would be used. Excludes the job's own nodes: their spare slots would be lost
// together with them.
std::vector<WorkerName> choose_held(const PlacementRequest& request, int32_t count,
                                    const std::vector<Host>& hosts);

}  // namespace muster::coordinator
