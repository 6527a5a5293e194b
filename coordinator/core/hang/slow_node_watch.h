// Confirms that a node slows its job down, by the time that its ranks compute. Pure; called on one
// thread at a time.
//
// Each rank is compared with the ranks of the same local number on the other nodes, which do the
// same work inside a node's part of the mesh. A node is over the limit if one of its ranks computes
// kNodeRatio times as long as the median of these, waits no longer than they do, and they wait for
// it; and if it computes longer than before, because work that is uneven from the start on is no
// fault of a node. Nodes that are recorded as slow need no such proof. The rank has to compute
// kNodeRatio times as long as every rank of the nodes that are not slow, too, so that the complete
// job waits for it. The node is confirmed if it is over the limit at each evaluation (Stragglers)
// for a whole window. If more than one node in kNodesPerSlowOne is over the limit, no further one
// is confirmed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/job/ids.h"
#include "common/time/time.h"
#include "coordinator/core/hang/rank_history.h"
#include "coordinator/core/hang/stragglers.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

class SlowNodeWatch {
 public:
  // `window`: the time for which a node has to be slow.
  explicit SlowNodeWatch(Duration window) : window_(window) {}

  struct Change {
    WorkerName worker;
    bool is_slow = false;  // false: the node is as fast as the others again
    // The slowest rank of the node, its time per step, and that without the node: of the ranks of
    // the same number, or of another rank that computes longer.
    Rank rank{-1};
    double seconds = 0;
    double others = 0;
  };
  // Compares the nodes after an evaluation of `stragglers`. Returns the nodes that are confirmed,
  // and the recorded ones that are no longer slow.
  std::vector<Change> compare(const Stragglers& stragglers, const RankHistory& history,
                              const Job& job, Instant now);
  // Returns whether the node is confirmed.
  bool is_slow(const WorkerName& worker) const;
  // Returns whether the nodes were compared for a window, and none was over the limit for half a
  // window in the time of two windows up to `now`, so that the newest step time is that without
  // slow nodes.
  bool is_quiet(Instant now) const;

 private:
  // The state of a node that is over the limit, or confirmed.
  struct Node {
    bool is_over = false;
    bool is_confirmed = false;
    int32_t evaluations = 0;  // in a row with this `is_over`
    Instant since{};
  };

  struct Slower {
    size_t rank = 0;
    double compute = 0;
    double typical = 0;  // the median of the ranks of the same number
  };

  // Returns the slowest rank of each node that is over the limit.
  std::map<WorkerName, Change> over_limit(const Stragglers& stragglers, const RankHistory& history,
                                          const Job& job) const;
  // Returns the factor from which on the node is over the limit.
  double limit_of(const WorkerName& worker, bool is_sampled) const;

  Duration window_;
  int64_t evaluations_ = 0;
  Instant began_{};
  std::map<WorkerName, Node> nodes_;
  std::optional<Instant> newest_;  // the newest time that was not quiet
};

}  // namespace muster::coordinator
