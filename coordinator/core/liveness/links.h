// Unanswered connections between the nodes of one attempt: two nodes that cannot reach each other
// although the coordinator can reach both, or a node that several others cannot reach.
//
// The kernels of the nodes report such connections in any phase and for any program
// (common/job/stalled_link.h). They end an attempt only under these conditions, because most links
// are back soon, and a program may train over another network:
//
//   - the job has completed no step since the link stalled, and is overdue
//   - the coordinator reaches both nodes
//   - the kernel has repeated the segment once more after the due time, and got no answer: a link
//     that is back carries nothing until the next repetition, which may be many seconds later
//   - no rank is stopped or dead, which would explain why the job stands still
//
// A connection that is being opened shows less: a host whose queue of new connections is full, such
// as that of a rank to which thousands connect, drops attempts. It never counts against a node.
// Connections to hosts that are no node of the job do not count. Volatile. Pure; called on one
// thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
// for at least 1.4 s before. If another node is free and the times of steps are known, a longer
// wait costs more than almost any restart. Otherwise: most switches and bonded cards recover within
// this time, and a long phase may not need the link.
constexpr Duration kLinkConfirm = std::chrono::milliseconds(2'500);
constexpr Duration kLinkWait = std::chrono::seconds(15);
// The additional time of a connection that is being opened.
constexpr Duration kConnectWait = std::chrono::seconds(6);
// The multiple of these times for a program that reports neither phases nor steps: it may train
// over another network, and its output is the only other sign of progress.
constexpr int kSilentTimes = 4;
// The same for a connection that is being opened. The kernel repeats the attempt after 1, 3, 7, 15,
// 31 and 63 s, so that a later time would never be confirmed before it gives up.
constexpr int kSilentConnectTimes = 2;
// The time after a repetition within which its answer would have arrived and been reported: workers
// read the connections once a second.
constexpr Duration kAnswerTime = std::chrono::seconds(2);

// The nodes of a job by their addresses. An address that several nodes have, such as that of a
// container bridge, has an empty name.
using NodesByAddress = std::map<std::string, WorkerName, std::less<>>;

// The stalled links between the nodes of one attempt.
class StalledLinks {
 public:
  static constexpr Instant kNever = Instant::max();

  struct Link {
    StalledLink link;
    WorkerName from, to;
    Instant since{};          // the time of the first report
    int32_t repetitions = 0;  // at the time of the first report, or at the end of the last excuse
    Instant repeated_at = kNever;  // the time of the newest report of more repetitions
  };

  // Records the links in a rank's newest report that lead to other nodes of the job.
  void observe(const ReachView& view, Rank rank, const std::vector<StalledLink>& links,
               const Fleet& fleet, Instant now);
  // Removes a rank that has ended.
  void forget(Rank rank) { links_.erase(rank); }
  // Forgets the addresses of the nodes, because one of them has registered again.
  void forget_addresses() { nodes_.reset(); }
  // Excludes a time in which no worker could report. Earlier repetitions no longer confirm a link.
  void excuse(Duration time);
  bool empty() const { return links_.empty(); }
  const std::map<Rank, std::vector<Link>>& all() const { return links_; }
  // Returns the addresses of the job's nodes. Visits the nodes only after forget_addresses().
  const NodesByAddress& nodes(const RanksByWorker& ranks, const Fleet& fleet);

 private:
  std::map<Rank, std::vector<Link>> links_;
  std::optional<NodesByAddress> nodes_;
};

// Nodes of a job that cannot reach each other.
struct CutLink {
  WorkerName node;
  // The other node. Empty: `node` is the only node that several pairs have in common.
  WorkerName peer;
  Instant since{};  // the time from which the link explains that the job makes no progress
  // The time at which a further repetition has got no answer; StalledLinks::kNever: none was sent.
  Instant confirmed_at = StalledLinks::kNever;
  bool is_connecting = false;
  std::string sentence;
};

// Returns the nodes that cannot reach each other; nullopt if there are none. If several pairs have
// no node in common, returns the pair that was reported first.
std::optional<CutLink> find_cut_link(const ReachView& view, const StalledLinks& links,
                                     const Fleet& fleet, Instant now);
// Returns the time at which the cut link ends the attempt; StalledLinks::kNever if it does not yet.
// Before, the job must be overdue. `has_other_node`: another node is free.
Instant cut_link_due(const CutLink& cut, const HangDetector& hang, bool has_other_node);
// Returns the fault of an attempt that a cut link ends.
Fault fault_of_cut_link(const Job& job, const CutLink& cut, int64_t unix_ns);

// Returns the unreachable workers of the job that have been silent for `loss_after`, and whose
// ranks do not answer the ranks of reachable workers either. Returns no worker whose ranks may
// still complete steps.
std::vector<WorkerName> confirmed_by_links(const ReachView& view, const Reach& reach,
                                           const StalledLinks& links, const Fleet& fleet,
                                           Duration loss_after, Instant now);

// Changes `fault` to that of a cut link if no rank failed by itself, and one that lost a peer has
// reported that its connection to another, reachable node of the job timed out, or that there is no
// route to it.
void name_cut_link(const ReachView& view, StalledLinks& links, const Fleet& fleet, Instant now,
                   Fault& fault);

}  // namespace muster::coordinator
