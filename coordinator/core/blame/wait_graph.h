// The graph of waiting ranks, from the process groups on the ranks' progress pages.
//
// A thread of a rank waits in a collective that it has entered (started) and not completed. The
// collective waits for the members that have not entered it. The end of a wait chain is where the
// fault is:
//
//   a rank that waits for no other           it is behind: it computes, loads data, sleeps, is
//                                            stopped or gone
//   a collective that all members entered    the transport, or a member that stands still inside
//   a cycle                                  a deadlock; or a rank in the cycle whose page does not
//                                            show whether it waits at all
//
// A group's channel ("fsdp#1": 1) is one thread of its rank. A channel that is in no collective
// executes requests of the rank's main thread, so waiting for the channel means waiting for the
// main thread. A main thread that is in no collective may wait for a channel of its rank that is in
// a collective. Pages do not show whether it does, so the edge is soft; only stacks show more.
//
// A message (send, recv) waits for its other end. The sequence numbers of both ends may differ;
// their names agree except for a last word that identifies the end. If no rank has entered the
// other end, the message waits for the neighbour in the group that it comes from or goes to.
//
// Members that no page shows have never joined the group. All groups of one name have the same
// layout (common/job/mesh.h). If each group's id is its lowest rank, the missing ranks of a group
// therefore follow from the other groups of its name. Otherwise every rank whose page shows no
// group of the name may be a missing member: these ranks form the pool.
//
// The time is linear in pages and groups. The graph refers to the evidence from which it was built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/job/rank_evidence.h"
#include "common/job/rank_set.h"

namespace muster::coordinator {

// The input about one rank.
struct RankView {
  const RankEvidence* evidence = nullptr;  // null: there is no evidence
  // The rank cannot continue, because it is dead, stopped, held by a debugger, or without evidence.
  bool halted = false;
};

class WaitGraph {
 public:
  static constexpr size_t kNoPool = std::numeric_limits<size_t>::max();

  struct Member {
    int32_t rank = 0;
    const GroupEvidence* group = nullptr;

    // Returns whether the member has entered a collective that it has not completed.
    bool is_inside() const { return group->completed < group->started; }
  };
  struct Group {
    std::string name;
    uint32_t id = 0;
    int32_t channel = 0;
    // The size that members report; at least the number of members that show the group.
    uint32_t size = 0;
    std::vector<Member> members;   // members that show the group, by rank
    std::vector<int32_t> missing;  // members that have never joined
    // The index of the group's pool. Some of the ranks in the pool have never joined the group.
    size_t pool = kNoPool;
    std::vector<size_t> instances;  // instances of this group, by number
  };
  // A collective or a message that at least one rank has entered and not completed.
  struct Instance {
    size_t group = 0;
    uint64_t seq = 0;     // 0: a message
    std::string message;  // the name of a message without its end
    // Members that have entered this instance and not completed it.
    std::vector<Member> inside;
    std::vector<int32_t> peers;  // the ranks that a message waits for
    // The message waits for a member of the group's pool.
    bool waits_for_pool = false;
  };

  // `ranks`: by rank. Requires that `ranks` and its evidence outlive the graph.
  explicit WaitGraph(const std::vector<RankView>& ranks);

  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Instance>& instances() const { return instances_; }

  // Returns the ranks in the group's pool. Requires that the group has a pool.
  const std::vector<int32_t>& pool_of(const Group& group) const { return pools_[group.pool]; }

  // Returns the ranks that a collective or a message waits for, ascending.
  std::vector<int32_t> absent(const Instance& instance) const;

  // An end of wait chains: the contents of a strongly connected component without outgoing edges.
  struct End {
    std::vector<int32_t> ranks;     // ascending
    std::vector<size_t> instances;  // indices in instances(), ascending
    // The ranks whose main thread is in no collective while another of their threads is in one.
    std::vector<int32_t> soft;
  };
  // Returns the ends of all wait chains, sorted by their lowest rank or instance.
  const std::vector<End>& ends() const { return ends_; }

  // Returns the ranks that wait for `rank`, directly or not, without `rank` itself.
  RankSet waiting_for(int32_t rank) const;
  // Returns the instances that wait for `rank`, because it has not entered them or is halted
  // inside: for each group only the first instance. Instances with the most ranks inside come
  // first.
  std::vector<size_t> waiting_in(int32_t rank) const;

 private:
  using Node = uint32_t;

  void collect_groups();
  void find_missing();
  void add_collectives(size_t group);
  void add_messages(size_t group);
  void connect_threads();
  void connect_collectives(const Group& group);
  void find_ends();
  bool is_awaited(Node thread) const;
  std::vector<std::vector<Node>> hard_cycles(const std::vector<Node>& nodes) const;
  void add_end(const std::vector<Node>& nodes);

  int32_t rank_count() const { return static_cast<int32_t>(ranks_.size()); }
  bool is_halted(int32_t rank) const { return ranks_[static_cast<size_t>(rank)].halted; }
  // The node of a rank's main thread is the rank's number. Threads of other channels follow, then
  // instances.
  Node thread(int32_t rank, int32_t channel);
  Node node_of(size_t instance) const { return first_instance_ + static_cast<Node>(instance); }
  void add_edge(Node from, Node to) { edges_[from].push_back(to); }

  const std::vector<RankView>& ranks_;
  std::vector<Group> groups_;
  std::vector<Instance> instances_;
  std::map<std::pair<int32_t, int32_t>, Node> threads_;  // (rank, channel) of channels other than 0
  std::vector<int32_t> rank_of_;                         // by node of a thread
  std::vector<bool> soft_;                               // by rank
  std::vector<std::vector<int32_t>> pools_;              // ranks that show no group of a name
  Node first_instance_ = 0, first_pool_ = 0;
  // By node: the nodes that this node waits for, and the nodes that wait for this node.
  std::vector<std::vector<Node>> edges_, waiting_;
  std::vector<End> ends_;
};

// Returns the name of a message without its end: "activations 3" for "activations 3 send".
std::string_view without_end(std::string_view message);

}  // namespace muster::coordinator
