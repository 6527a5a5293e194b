#include "coordinator/core/blame/wait_graph.h"

#include <algorithm>
#include <limits>
#include <set>

#include "coordinator/core/blame/components.h"

namespace muster::coordinator {
namespace {

bool is_message(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
}

bool contains_word(std::string_view message, std::string_view word) {
  return message.find(word) != std::string_view::npos;
}

// The position of a message's other end in the order of stages, as far as its name shows it.
struct Directions {
  bool before = true;
  bool behind = true;
};
Directions directions_of(CollectiveKind kind, std::string_view message) {
  const bool forward = contains_word(message, "activation") || contains_word(message, "forward");
  const bool backward = contains_word(message, "gradient") || contains_word(message, "backward");
  if (forward == backward) return {};
  const bool from_before = (kind == CollectiveKind::kRecv) == forward;
  return {.before = from_before, .behind = !from_before};
}

template <class T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

std::string_view without_end(std::string_view message) {
  for (const std::string_view end : {" send", " recv"})
    if (message.ends_with(end)) return message.substr(0, message.size() - end.size());
  return message;
}

WaitGraph::WaitGraph(const std::vector<RankView>& ranks) : ranks_(ranks) {
  collect_groups();
  find_missing();
  for (size_t g = 0; g < groups_.size(); ++g) {
    add_collectives(g);
    add_messages(g);
  }
  connect_threads();
  find_ends();
}

void WaitGraph::collect_groups() {
  std::map<std::pair<std::string_view, uint32_t>, size_t> index;
  for (int32_t rank = 0; rank < rank_count(); ++rank) {
    const RankEvidence* evidence = ranks_[static_cast<size_t>(rank)].evidence;
    if (evidence == nullptr) continue;
    for (const GroupEvidence& shown : evidence->groups) {
      const auto [place, is_new] = index.try_emplace({shown.name, shown.id}, groups_.size());
      if (is_new) {
        groups_.emplace_back();
        groups_.back().name = shown.name;
        groups_.back().id = shown.id;
        groups_.back().channel = shown.channel();
      }
      Group& group = groups_[place->second];
      // A page that lists a group twice does not come from the trainer: only the first entry
      // counts.
      if (!group.members.empty() && group.members.back().rank == rank) continue;
      group.members.push_back({rank, &shown});
      // A page may contain any size, but no group is larger than the job.
      group.size =
          std::max({group.size, std::min(shown.members, static_cast<uint32_t>(rank_count())),
                    static_cast<uint32_t>(group.members.size())});
    }
  }
}

// All groups of one name have the same layout if ids are lowest ranks: the distances between the
// known members of one group apply to the others.
void WaitGraph::find_missing() {
  struct Name {
    std::set<int64_t> distances;
    std::vector<size_t> groups;
    std::vector<bool> shown;  // by rank
    bool ids_are_ranks = true;
  };
  std::map<std::string_view, Name> names;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Name& name = names[groups_[g].name];
    name.groups.push_back(g);
    name.shown.resize(ranks_.size());
    for (const Member& member : groups_[g].members) {
      name.shown[static_cast<size_t>(member.rank)] = true;
      name.distances.insert(int64_t{member.rank} - groups_[g].id);
      if (member.rank < int64_t{groups_[g].id}) name.ids_are_ranks = false;
    }
  }
  for (const auto& [text, name] : names) {
    std::vector<int32_t> rest;  // ranks that show no group of this name
    for (int32_t rank = 0; rank < rank_count(); ++rank)
      if (!name.shown[static_cast<size_t>(rank)]) rest.push_back(rank);
    for (const size_t g : name.groups) {
      Group& group = groups_[g];
      const size_t places = group.size - group.members.size();
      if (places == 0 || rest.empty()) continue;
      std::set<int64_t> distances = name.distances;
      distances.insert(0);
      if (name.ids_are_ranks && distances.size() == group.size) {
        for (const int64_t distance : distances) {
          const int64_t rank = int64_t{group.id} + distance;
          if (rank < rank_count() && !name.shown[static_cast<size_t>(rank)])
            group.missing.push_back(static_cast<int32_t>(rank));
        }
      }
      if (group.missing.size() == places) continue;
      group.missing.clear();
      if (rest.size() == places) {
        group.missing = rest;
      } else {
        group.pool = pools_.size();
      }
    }
    pools_.push_back(std::move(rest));
  }
}

void WaitGraph::add_collectives(size_t g) {
  std::map<uint64_t, size_t> by_seq;
  for (const Member& member : groups_[g].members) {
    if (!member.is_inside() || is_message(member.group->kind)) continue;
    const auto [place, is_new] = by_seq.try_emplace(member.group->completed + 1, instances_.size());
    if (is_new) {
      instances_.emplace_back();
      instances_.back().group = g;
      instances_.back().seq = place->first;
    }
    instances_[place->second].inside.push_back(member);
  }
  for (const auto& [seq, instance] : by_seq) groups_[g].instances.push_back(instance);
}

void WaitGraph::add_messages(size_t g) {
  Group& group = groups_[g];
  std::map<std::string_view, size_t> by_message;
  for (const Member& member : group.members) {
    if (!member.is_inside() || !is_message(member.group->kind)) continue;
    const std::string_view message = without_end(member.group->collective);
    const auto [place, is_new] = by_message.try_emplace(message, instances_.size());
    if (is_new) {
      group.instances.push_back(instances_.size());
      instances_.emplace_back();
      instances_.back().group = g;
      instances_.back().message = message;
    }
    instances_[place->second].inside.push_back(member);
  }
  if (by_message.empty()) return;
  std::vector<int32_t> places = group.missing;
  for (const Member& member : group.members) places.push_back(member.rank);
  sort_unique(places);
  std::set<std::string_view> done;  // messages whose end is complete
  for (const Member& member : group.members)
    if (!member.is_inside() && is_message(member.group->kind))
      done.insert(without_end(member.group->collective));
  for (const auto& [message, index] : by_message) {
    Instance& instance = instances_[index];
    if (instance.inside.size() != 1 || done.contains(message))
      continue;  // the other end is, or was, in the message
    if (group.pool != kNoPool) {
      instance.waits_for_pool = true;
      continue;
    }
    const Member& one = instance.inside[0];
    const auto at = static_cast<size_t>(std::lower_bound(places.begin(), places.end(), one.rank) -
                                        places.begin());
    const Directions directions = directions_of(one.group->kind, message);
    const size_t n = places.size();
    if (directions.before) instance.peers.push_back(places[(at + n - 1) % n]);
    if (directions.behind) instance.peers.push_back(places[(at + 1) % n]);
    std::erase(instance.peers, one.rank);
    sort_unique(instance.peers);
  }
}

std::vector<int32_t> WaitGraph::absent(const Instance& instance) const {
  if (instance.seq == 0 && !instance.waits_for_pool) return instance.peers;
  const Group& group = groups_[instance.group];
  std::vector<int32_t> absent = group.missing;
  if (group.pool != kNoPool) absent = pools_[group.pool];
  for (const Member& member : group.members)
    if (member.group->started < instance.seq) absent.push_back(member.rank);
  sort_unique(absent);
  return absent;
}

WaitGraph::Node WaitGraph::thread(int32_t rank, int32_t channel) {
  if (channel == 0) return static_cast<Node>(rank);
  const auto [place, is_new] =
      threads_.try_emplace({rank, channel}, static_cast<Node>(rank_of_.size()));
  if (is_new) rank_of_.push_back(rank);
  return place->second;
}

void WaitGraph::connect_threads() {
  for (int32_t rank = 0; rank < rank_count(); ++rank) rank_of_.push_back(rank);
  for (const Group& group : groups_) {
    for (const Member& member : group.members) thread(member.rank, group.channel);
    for (const int32_t rank : group.missing) thread(rank, group.channel);
  }
  first_instance_ = static_cast<Node>(rank_of_.size());
  first_pool_ = first_instance_ + static_cast<Node>(instances_.size());
  edges_.resize(first_pool_ + pools_.size());
  for (size_t i = 0; i < instances_.size(); ++i) {
    const int32_t channel = groups_[instances_[i].group].channel;
    for (const Member& member : instances_[i].inside) {
      if (is_halted(member.rank)) {
        add_edge(node_of(i), static_cast<Node>(member.rank));
      } else {
        add_edge(thread(member.rank, channel), node_of(i));
      }
    }
  }
  soft_.resize(ranks_.size());
  for (const auto& [key, node] : threads_) {
    const auto main = static_cast<Node>(key.first);
    if (edges_[node].empty()) {
      add_edge(node, main);  // halted, or idle
      continue;
    }
    const bool is_in_collective = !edges_[main].empty() && !soft_[main];
    // Data loading involves no collectives.
    if (is_in_collective || ranks_[main].evidence->phase == Phase::kData) continue;
    soft_[main] = true;
    add_edge(main, node);
  }
  // A rank that may be missing in a group is represented by its main thread.
  for (size_t pool = 0; pool < pools_.size(); ++pool)
    edges_[first_pool_ + pool].assign(pools_[pool].begin(), pools_[pool].end());
  for (const Group& group : groups_) connect_collectives(group);
}

// Adds the edges from each collective of a group to the members that have not entered it. A
// collective has edges only to the previous collective of the group, which waits for the members
// behind it, and to the members that have entered only the previous collective. So a group has
// about as many edges as members.
void WaitGraph::connect_collectives(const Group& group) {
  std::vector<Member> members = group.members;
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return a.group->started < b.group->started;
  });
  auto next = members.begin();
  size_t earlier = instances_.size();
  for (const size_t i : group.instances) {
    const Instance& instance = instances_[i];
    const Node node = node_of(i);
    if (instance.seq == 0) {
      for (const int32_t rank : instance.peers) add_edge(node, thread(rank, group.channel));
      if (instance.waits_for_pool) add_edge(node, first_pool_ + static_cast<Node>(group.pool));
      continue;
    }
    if (earlier == instances_.size()) {
      for (const int32_t rank : group.missing) add_edge(node, thread(rank, group.channel));
      if (group.pool != kNoPool) add_edge(node, first_pool_ + static_cast<Node>(group.pool));
    } else if (!edges_[node_of(earlier)].empty()) {
      add_edge(node, node_of(earlier));
    }
    for (; next != members.end() && next->group->started < instance.seq; ++next)
      add_edge(node, thread(next->rank, group.channel));
    earlier = i;
  }
}

void WaitGraph::find_ends() {
  const std::vector<uint32_t> component = components_of(edges_);
  std::vector<bool> is_left(edges_.size());  // by component
  waiting_.resize(edges_.size());
  for (Node from = 0; from < edges_.size(); ++from) {
    for (const Node to : edges_[from]) {
      waiting_[to].push_back(from);
      if (component[from] != component[to]) is_left[component[from]] = true;
    }
  }
  std::map<uint32_t, std::vector<Node>> ends;
  for (Node node = 0; node < first_pool_; ++node)
    if (!is_left[component[node]] && (node >= first_instance_ || is_awaited(node)))
      ends[component[node]].push_back(node);
  for (const auto& [number, nodes] : ends) {
    // A cycle of ranks that visibly wait is a deadlock, independent of the other ranks.
    const std::vector<std::vector<Node>> cycles = hard_cycles(nodes);
    for (const std::vector<Node>& cycle : cycles) add_end(cycle);
    if (cycles.empty()) add_end(nodes);
  }
}

// Returns whether a collective waits for this thread, directly or through another thread of the
// rank.
bool WaitGraph::is_awaited(Node thread) const {
  return std::any_of(waiting_[thread].begin(), waiting_[thread].end(),
                     [&](Node from) { return from >= first_instance_ || !waiting_[from].empty(); });
}

std::vector<std::vector<WaitGraph::Node>> WaitGraph::hard_cycles(
    const std::vector<Node>& nodes) const {
  std::map<Node, Node> place;
  for (const Node node : nodes) place.try_emplace(node, static_cast<Node>(place.size()));
  std::vector<std::vector<Node>> edges(nodes.size());
  for (const Node from : nodes) {
    if (from < ranks_.size() && soft_[from]) continue;
    for (const Node to : edges_[from]) {
      const auto found = place.find(to);
      if (found != place.end()) edges[place.at(from)].push_back(found->second);
    }
  }
  const std::vector<uint32_t> component = components_of(edges);
  std::map<uint32_t, std::vector<Node>> parts;
  for (const auto& [node, local] : place) parts[component[local]].push_back(node);
  std::vector<std::vector<Node>> cycles;
  for (auto& [number, part] : parts)
    if (part.size() > 1) cycles.push_back(std::move(part));
  return cycles;
}

void WaitGraph::add_end(const std::vector<Node>& nodes) {
  End end;
  for (const Node node : nodes) {
    if (node >= first_pool_) continue;
    if (node >= first_instance_) {
      end.instances.push_back(node - first_instance_);
      continue;
    }
    end.ranks.push_back(rank_of_[node]);
    if (node < ranks_.size() && soft_[node]) end.soft.push_back(rank_of_[node]);
  }
  sort_unique(end.ranks);
  ends_.push_back(std::move(end));
}

RankSet WaitGraph::waiting_for(int32_t rank) const {
  std::vector<bool> seen(edges_.size());
  std::vector<Node> open = {static_cast<Node>(rank)};
  std::vector<RankSet::Range> found;
  seen[open[0]] = true;
  while (!open.empty()) {
    const Node node = open.back();
    open.pop_back();
    for (const Node from : waiting_[node]) {
      if (seen[from]) continue;
      seen[from] = true;
      open.push_back(from);
      if (from < first_instance_ && rank_of_[from] != rank)
        found.push_back({rank_of_[from], rank_of_[from]});
    }
  }
  return RankSet::of(std::move(found));
}

std::vector<size_t> WaitGraph::waiting_in(int32_t rank) const {
  std::vector<size_t> found;
  const auto collect = [&](Node node) {
    for (const Node from : waiting_[node]) {
      if (from >= first_pool_) {
        for (const Node instance : waiting_[from]) found.push_back(instance - first_instance_);
      } else if (from >= first_instance_) {
        found.push_back(from - first_instance_);
      }
    }
  };
  collect(static_cast<Node>(rank));
  for (auto thread = threads_.lower_bound({rank, std::numeric_limits<int32_t>::min()});
       thread != threads_.end() && thread->first.first == rank; ++thread)
    collect(thread->second);
  sort_unique(found);
  std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) {
    return instances_[a].inside.size() > instances_[b].inside.size();
  });
  return found;
}

}  // namespace muster::coordinator
