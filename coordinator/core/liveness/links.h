// Connections between the nodes of one attempt that nothing answers: two nodes that cannot reach
// each other although the coordinator can reach both, or a node that several others cannot reach.
//
// The kernels of the nodes report such connections in any phase and for any program
// (common/job/stalled_link.h). A job that progresses does not need them, so a link counts only
// while the job has made no progress since the link stalled. Connections to hosts that are no node
// of the job do not count. Volatile. Pure; called on one thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/job/ids.h"
#include "common/job/stalled_link.h"
#include "common/time/time.h"
#include "coordinator/core/fleet/fleet.h"
#include "coordinator/core/liveness/reach.h"
#include "coordinator/core/records/core_time.h"
#include "coordinator/core/records/job.h"

namespace muster::coordinator {

// The time for which a reported link must stay stalled before it ends an attempt. It was stalled
// for at least 1.4 s before. If another node is free, a longer wait costs more than almost any
// restart. Otherwise the job can only wait until the link is back: most switches and bonded cards
// recover within this time.
constexpr Duration kLinkConfirm = std::chrono::milliseconds(2'500);
constexpr Duration kLinkWait = std::chrono::seconds(15);
// The additional time of a connection that is being opened: a host whose queue of new connections
// is full, because thousands of ranks connect to it, drops attempts for some seconds.
constexpr Duration kConnectWait = std::chrono::seconds(6);
// The multiple of these times for a program that reports neither phases nor steps: it may train
// over another network, and its output is the only other sign of progress.
constexpr int kSilentTimes = 4;

// The stalled links of the ranks of one attempt.
class StalledLinks {
 public:
  struct Link {
    StalledLink link;
    Instant since{};  // the time of the first report
  };

  // Records the links in a rank's newest report.
  void observe(Rank rank, const std::vector<StalledLink>& links, Instant now);
  // Removes a rank that has ended.
  void forget(Rank rank) { links_.erase(rank); }
  // Excludes coordinator downtime.
  void excuse(Duration time);
  bool empty() const { return links_.empty(); }
  const std::map<Rank, std::vector<Link>>& all() const { return links_; }

 private:
  std::map<Rank, std::vector<Link>> links_;
};

// Nodes of a job that cannot reach each other.
struct CutLink {
  WorkerName node;
  // The other node. Empty: `node` is the only node that several pairs have in common.
  WorkerName peer;
  Instant since{};  // the time of the first report
  bool is_connecting = false;
  std::string sentence;
};

// Returns the nodes that cannot reach each other; nullopt if there are none. If several pairs have
// no node in common, returns the pair that was reported first.
std::optional<CutLink> find_cut_link(const ReachView& view, const StalledLinks& links,
                                     const Fleet& fleet, Instant now);
// Returns the time at which the cut link ends the attempt. `has_other_node`: another node is free.
Instant cut_link_due(const CutLink& cut, bool has_other_node, bool is_silent);
// Returns the fault of an attempt that a cut link ends.
Fault fault_of_cut_link(const Job& job, const CutLink& cut, int64_t unix_ns);

// Returns the workers of the job that have been silent for `loss_after`, and whose ranks do not
// answer the ranks of reachable workers either.
std::vector<WorkerName> confirmed_by_links(const ReachView& view, const StalledLinks& links,
                                           const Fleet& fleet, Duration loss_after, Instant now);

// Changes `fault` to that of a cut link if no rank failed by itself, and one that lost a peer has
// reported that its connection to another, reachable node of the job timed out, or that there is no
// route to it.
void name_cut_link(const Job& job, const RanksByWorker& ranks, const Fleet& fleet, Instant now,
                   Fault& fault);

}  // namespace muster::coordinator
