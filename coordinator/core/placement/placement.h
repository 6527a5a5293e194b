// Which workers get which ranks of a job, and which are kept free for it. Pure: equal inputs give
// equal placements.
//
// All ranks are placed or none (gang placement). Ranks are host-contiguous: rank = node_index *
// ranks_per_node + local_rank, as common/mesh.h has it.
//
// A node that had ranks of the job before and can have them again gets the same ones: what is in
// its memory (pages of files, local checkpoints) is of those ranks. Who comes in place of a lost
// one gets that one's ranks. The new ones are taken in this order: who had other ranks of the job,
// who is held for it, who is held for nobody, who is held for a job behind it in the queue; and of
// equals by comes_before(): those under one switch lie together, and neighbours in a rack are
// usually numbered next to each other.
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
  bool held = false;     // for some job
  std::string switches;  // WorkerRegistered's
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

// By switches, and below one switch by name, both in natural order.
bool comes_before(const Host& a, const Host& b);

// The demand of one job, with its former nodes.
struct PlacementRequest {
  int32_t ranks_per_node = 1;
  std::vector<WorkerName> previous;  // its nodes by their ranks
  std::vector<WorkerName> held;      // kept free for it
  std::set<WorkerName> avoid{};      // not kept free for it, and taken last
  int32_t gpus_per_rank = 0;         // of its own, or kGpusOfSlot

  int32_t gpus_of(const Host& host) const {
    return ranks_per_node * gpus_of_rank(gpus_per_rank, host.gpus, host.slots);
  }
  bool has_room(const Host& host) const {
    const int32_t gpus = gpus_of(host);
    return host.slots_free >= ranks_per_node && (gpus == 0 || host.gpus_free >= gpus);
  }
  // When nobody else is there.
  bool would_have_room(const Host& host) const {
    return host.slots >= ranks_per_node && host.gpus >= gpus_of(host);
  }
};

enum class Fit {
  kNow,    // placed
  kLater,  // enough workers are connected, but they are busy
  kNever,  // more or larger workers have to come
};

struct Placement {
  Fit fit = Fit::kNever;
  std::vector<RankPlacement> ranks;  // by rank; empty unless kNow
};

// `hosts` in the order of comes_before(), here and below.
Placement place(const PlacementRequest& request, int32_t nodes, const std::vector<Host>& hosts);

// How many nodes there is room for now.
int32_t nodes_free(const PlacementRequest& request, const std::vector<Host>& hosts);

// At most `count` workers to keep free for a job that runs on request.previous, in the order in
// which they would be taken. None of those: a second place there would be lost with the first.
std::vector<WorkerName> choose_held(const PlacementRequest& request, int32_t count,
                                    const std::vector<Host>& hosts);

}  // namespace muster::coordinator
