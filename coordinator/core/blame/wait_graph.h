// The graph of waiting ranks, from the process groups on the ranks' progress pages.
//
// A thread of a rank waits in a collective that it has entered (started) and not completed. The
// collective waits for the members that have not entered it. What is at the end of the waiting is
// where the fault is:
//
//   a rank that waits for nobody           it is behind: it computes, loads data, sleeps, is
//                                          stopped or gone
//   a collective that everybody entered    the transport, or a member that stands still inside
//   a circle                               a deadlock; or, where the page does not show that a rank
//                                          waits at all, that rank
//
// A group's channel ("fsdp#1": 1) is one thread of its rank. A channel that is in no collective does what
// the rank's main thread asks for, so that who waits for it waits for the main thread. A main
// thread that is in no collective itself may wait for a channel of its own that is in one; the page
// does not show it: that edge is a soft one, and only stacks show more.
//
// A message (send, recv) waits for its other end. Sequence numbers of both ends need not agree, the
// name does, but for a last word that says which end it is. Where the other end is not in it, it is
// the neighbour in the group that the message comes from or goes to.
//
// Members that a page does not show have never joined. Which ranks they are follows from the other
// groups of that name when ids are lowest ranks (ranks of one name's groups lie alike,
// common/mesh.h); otherwise every rank that shows no group of the name may be one.
//
// Linear in pages and groups. Plain memory; refers to the evidence it was made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/rank_evidence.h"
#include "common/rank_set.h"

namespace muster::coordinator {

// One rank as blame sees it.
struct RankView {
  const RankEvidence* evidence = nullptr;  // null: nothing is known
  // Does nothing any more: dead, stopped, held by a debugger, or nothing is known of it.
  bool halted = false;
};

class WaitGraph {
 public:
  static constexpr size_t kNoPool = std::numeric_limits<size_t>::max();

  struct Member {
    int32_t rank = 0;
    const GroupEvidence* group = nullptr;

    // Has entered what it has not completed.
    bool is_inside() const { return group->completed < group->started; }
  };
  struct Group {
    std::string name;
    uint32_t id = 0;
    int32_t channel = 0;
    uint32_t size = 0;              // as its members say; at least those that show it
    std::vector<Member> members;    // that show it, by rank
    std::vector<int32_t> missing;   // that have never joined
    size_t pool = kNoPool;          // of ranks of which some have never joined
    std::vector<size_t> instances;  // those of this group, by number
  };
  // A collective, or a message, that somebody is in.
  struct Instance {
    size_t group = 0;
    uint64_t seq = 0;             // 0: a message
    std::string message;          // of a message: its name without the end
    std::vector<Member> inside;   // have entered and not completed it
    std::vector<int32_t> peers;   // of a message: whom it waits for
    bool waits_for_pool = false;  // of a message: or for one of the group's pool
  };

  // `ranks` by rank; what it points to outlives the graph.
  explicit WaitGraph(const std::vector<RankView>& ranks);

  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<Instance>& instances() const { return instances_; }

  // Ranks of which some are missing in the group, which has a pool.
  const std::vector<int32_t>& pool_of(const Group& group) const { return pools_[group.pool]; }

  // The ranks that a collective or a message waits for: growing.
  std::vector<int32_t> absent(const Instance& instance) const;

  // An end of the waiting: what one strongly connected component has that nothing leaves.
  struct End {
    std::vector<int32_t> ranks;     // growing
    std::vector<size_t> instances;  // of instances(), growing
    // Those of the ranks whose main threads are in no collective, though another thread of theirs
    // is.
    std::vector<int32_t> soft;
  };
  // By their lowest rank or instance.
  const std::vector<End>& ends() const { return ends_; }

  // The ranks that wait for `rank`, directly or not, without itself.
  RankSet waiting_for(int32_t rank) const;
  // The instances that wait for `rank`: it is absent, or halted inside; of one group's, the first.
  // Those with the most ranks inside first.
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
  bool is_wanted(Node thread) const;
  std::vector<std::vector<Node>> hard_circles(const std::vector<Node>& nodes) const;
  void add_end(const std::vector<Node>& nodes);

  int32_t rank_count() const { return static_cast<int32_t>(ranks_.size()); }
  bool is_halted(int32_t rank) const { return ranks_[static_cast<size_t>(rank)].halted; }
  // The main thread of a rank is its number; other channels' threads follow, then instances.
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
  std::vector<std::vector<Node>> edges_, waiting_;  // by node: whom it waits for, who waits for it
  std::vector<End> ends_;
};

// "activations 3 send" → "activations 3".
std::string_view without_end(std::string_view message);

}  // namespace muster::coordinator
