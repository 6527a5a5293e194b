// Assigns a job's ranks to workers, and selects workers to reserve for it. Pure: equal inputs give
// equal placements.
//
// All ranks are placed or none (gang placement). Ranks are contiguous on each host, as in
// common/job/mesh.h: rank = node_index * ranks_per_node + local_rank.
//
// A former node of the job that is available again gets the same ranks, because its memory holds
// their data (page cache, local checkpoints). A replacement node gets the ranks of the lost node.
// All other nodes of the job keep their ranks, however many nodes were lost.
//
// A replacement is chosen from the NVLink domain of the lost node, otherwise from the nearest
// switch above it, otherwise from anywhere. Equally near nodes are chosen in this order: nodes that
// had other ranks of the job, nodes reserved for the job, unreserved nodes. Nodes reserved for a
// job that is later in the queue are chosen only if no other node is left, then nodes below a
// switch that may have failed, and nodes to avoid last.
// nearest_together() selects the nodes of a new job.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "coordinator/core/placement/host_resources.h"
#include "coordinator/core/records/job.h"
#include "coordinator/core/records/node_place.h"

namespace muster::coordinator {

// The requirements of one job for its nodes, with its former nodes.
struct PlacementRequest {
  int32_t ranks_per_node = 1;
  std::vector<WorkerName> previous;  // former nodes by their ranks
  std::vector<WorkerName> held;      // reserved for the job
  // Nodes to avoid: never reserved for the job, and chosen last.
  std::set<WorkerName> avoid{};
  int32_t gpus_per_rank = 0;  // exclusive GPUs of each rank: a number, or kGpusOfSlot
  int32_t segment_nodes = 0;  // as in JobSpec
  // The places of former nodes that are known, also of lost ones.
  std::map<WorkerName, NodePlace> places{};
  // Nodes below a switch that may have failed: as those to avoid, but chosen before them. The job's
  // own nodes among them keep their ranks.
  std::set<WorkerName> suspect{};
  std::vector<std::string> selector{};     // as JobSpec::node_selector
  std::vector<std::string> tolerations{};  // as in JobSpec

  // Returns the number of GPUs that the job's ranks on the host need.
  int32_t gpus_of(const Host& host) const {
    return ranks_per_node * gpus_of_rank(gpus_per_rank, host.gpus, host.slots);
  }
  // Returns whether the job may run on the host, by its labels and taints.
  bool is_suited(const Host& host) const {
    return host.labels == nullptr || suits(*host.labels, selector, tolerations);
  }
  // Returns whether the host has room for the job's ranks now.
  bool has_room(const Host& host) const {
    const int32_t gpus = gpus_of(host);
    return is_suited(host) && host.slots_free >= ranks_per_node &&
           (gpus == 0 || host.gpus_free >= gpus);
  }
  // Returns whether the host would have room if it were empty.
  bool would_have_room(const Host& host) const {
    return is_suited(host) && host.slots >= ranks_per_node && host.gpus >= gpus_of(host);
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

// Returns the number of hosts that have room for the job's ranks now.
int32_t nodes_free(const PlacementRequest& request, const std::vector<Host>& hosts);

// Returns at most `count` workers to reserve for a job that runs on request.previous. Workers that
// are reserved for the job already come first. The others are chosen near the job's nodes: each
// domain gets a share by its number of the job's nodes, then each switch. Excludes the job's own
// nodes: their spare slots would be lost together with them.
std::vector<WorkerName> choose_held(const PlacementRequest& request, int32_t count,
                                    const std::vector<Host>& hosts);

}  // namespace muster::coordinator
