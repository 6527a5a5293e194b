#include "trainer_core/comm/transport_group.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "trainer_core/base/check.h"
#include "trainer_core/comm/collective_trace.h"
#include "trainer_core/comm/rounds.h"

namespace muster::trainer {
namespace {

// The levels of a group that has equally many members, at least two, on each of several nodes.
struct Levels {
  std::vector<std::vector<int>> nodes;  // members on each node; empty: only one level
  Subgroup inside;                      // members on this rank's node
  Subgroup across;                      // members with the same index on their nodes, in node order
};

Levels levels_of(const std::vector<int>& nodes, int rank) {
  std::map<int, std::vector<int>> by_node;
  std::vector<int> order;  // nodes in order of their first members
  for (int member = 0; member < static_cast<int>(nodes.size()); ++member) {
    std::vector<int>& on_node = by_node[nodes[static_cast<size_t>(member)]];
    if (on_node.empty()) order.push_back(nodes[static_cast<size_t>(member)]);
    on_node.push_back(member);
  }
  if (order.size() < 2) return {};
  Levels levels;
  const int own_node = nodes[static_cast<size_t>(rank)];
  levels.inside.members = by_node[own_node];
  const auto& inside = levels.inside.members;
  levels.inside.position =
      static_cast<int>(std::find(inside.begin(), inside.end(), rank) - inside.begin());
  for (const int node : order) {
    const std::vector<int>& on_node = by_node[node];
    if (on_node.size() != inside.size() || inside.size() < 2) return {};
    if (node == own_node) levels.across.position = levels.across.size();
    levels.across.members.push_back(on_node[static_cast<size_t>(levels.inside.position)]);
    levels.nodes.push_back(on_node);
  }
  return levels;
}

uint32_t lowest_of(const std::vector<int>& members) {
  return static_cast<uint32_t>(*std::min_element(members.begin(), members.end()));
}

class TransportGroup : public ProcessGroup {
  using Sends = Rounds::Sends;

 public:
  TransportGroup(std::shared_ptr<Transport> transport, GroupSpec spec, int rank,
                 ProgressWriter* page)
      : transport_(std::move(transport)),
        nodes_(std::move(spec.nodes)),
        trace_(page, spec.name, static_cast<uint32_t>(spec.members.size()),
               lowest_of(spec.members)),
        channel_(transport_->open(spec.name, spec.members)),
        rounds_(*channel_, trace_, rank, nodes_),
        levels_(levels_of(nodes_, rank)) {
    all_.members.resize(spec.members.size());
    std::iota(all_.members.begin(), all_.members.end(), 0);
    all_.position = rank;
  }

  const std::string& name() const override { return trace_.group(); }
  int rank() const override { return all_.position; }
  int size() const override { return all_.size(); }

  absl::Status all_reduce(BufferView data, std::string_view name) override {
    return reduce_in_blocks(data, Reduction::kSum, name);
  }
  absl::Status all_reduce_max(BufferView data, std::string_view name) override {
    return reduce_in_blocks(data, Reduction::kMax, name);
  }

  absl::Status all_gather(ConstBufferView input, BufferView output,
                          std::string_view name) override {
    MUSTER_CHECK(output.count == input.count * ranks() && output.dtype == input.dtype)
        << "all_gather of " << input.count << " into " << output.count;
    const auto place_of = [&](int member) { return slice_of(output, all_, member); };
    return run(CollectiveKind::kAllGather, name, input, [&] {
      copy(input, place_of(rank()));
      if (has_levels()) return gather_by_levels(output);
      return rounds_.exchange(
          all_, Sends::kSame, [&](int) { return input; }, place_of);
    });
  }

  absl::Status reduce_scatter(ConstBufferView input, BufferView output,
                              std::string_view name) override {
    MUSTER_CHECK(input.count == output.count * ranks())
        << "reduce_scatter of " << input.count << " into " << output.count;
    return run(CollectiveKind::kReduceScatter, name, input, [&] {
      return has_levels() ? scatter_by_levels(input, output)
                          : rounds_.reduce_slices(all_, input, output, Reduction::kSum);
    });
  }

  absl::Status all_to_all_v(ConstBufferView input, std::span<const size_t> send_counts,
                            BufferView output, std::span<const size_t> receive_counts,
                            std::string_view name) override {
    check_slices(input, send_counts, output, receive_counts);
    const std::vector<size_t> sends = offsets_of(send_counts);
    const std::vector<size_t> receives = offsets_of(receive_counts);
    const auto outgoing = [&](int to) {
      const auto i = static_cast<size_t>(to);
      return input.part(sends[i], send_counts[i]);
    };
    const auto incoming = [&](int from) {
      const auto j = static_cast<size_t>(from);
      return output.part(receives[j], receive_counts[j]);
    };
    return run(CollectiveKind::kAllToAll, name, input, [&] {
      copy(outgoing(rank()), incoming(rank()));
      return rounds_.exchange(all_, Sends::kDifferent, outgoing, incoming);
    });
  }

  // The root scatters slices, and all ranks gather them, so that the root sends the data twice
  // instead of n - 1 times (van de Geijn's algorithm, in Thakur et al. 2005).
  absl::Status broadcast(BufferView data, int root, std::string_view name) override {
    const BufferView nothing(nullptr, 0, data.dtype);
    const auto slice = [&](int member) { return slice_of(data, all_, member); };
    const bool is_root = rank() == root;
    return run(CollectiveKind::kBroadcast, name, data, [&] {
      auto status = rounds_.exchange(
          all_, Sends::kDifferent, [&](int to) { return is_root ? slice(to) : nothing; },
          [&](int from) { return from == root ? slice(rank()) : nothing; });
      if (!status.ok()) return status;
      return rounds_.exchange(
          all_, Sends::kSame, [&](int to) { return to == root ? nothing : slice(rank()); },
          [&](int from) { return is_root ? nothing : slice(from); });
    });
  }

  absl::Status send(ConstBufferView data, int to, std::string_view name) override {
    return run(CollectiveKind::kSend, name, data,
               [&] { return rounds_.pass(data, to, BufferView(nullptr, 0, data.dtype), rank()); });
  }
  absl::Status recv(BufferView data, int from, std::string_view name) override {
    return run(CollectiveKind::kRecv, name, data, [&] {
      return rounds_.pass(ConstBufferView(nullptr, 0, data.dtype), rank(), data, from);
    });
  }
  absl::Status send_recv(ConstBufferView outgoing, int to, BufferView incoming, int from,
                         std::string_view name) override {
    return run(CollectiveKind::kSendRecv, name, outgoing, [&] {
      if (to != rank()) return rounds_.pass(outgoing, to, incoming, from);
      MUSTER_CHECK(from == to && outgoing.count == incoming.count) << "a message to oneself";
      copy(outgoing, incoming);
      return absl::OkStatus();
    });
  }

  absl::Status barrier(std::string_view name) override {
    std::vector<int32_t> here(ranks(), rank());
    const auto one = [&](int member) { return slice_of(BufferView(here), all_, member); };
    return run(CollectiveKind::kBarrier, name, {}, [&] {
      return rounds_.exchange(
          all_, Sends::kSame, [&](int) { return one(rank()); }, one);
    });
  }

  SentBytes sent(CollectiveKind kind) const override { return trace_.sent(kind); }
  Duration busy() const override { return trace_.busy(); }
  void abort() override { transport_->abort(); }

 private:
  size_t ranks() const { return all_.members.size(); }
  bool has_levels() const { return !levels_.nodes.empty(); }
  template <class Body>
  absl::Status run(CollectiveKind kind, std::string_view name, ConstBufferView data, Body&& body) {
    return trace_.run({kind, name, data.bytes(), data.dtype}, std::forward<Body>(body));
  }

  static void copy(ConstBufferView from, BufferView to) {
    if (from.count > 0 && from.data != to.data) std::memcpy(to.data, from.data, from.bytes());
  }

  static std::vector<size_t> offsets_of(std::span<const size_t> counts) {
    std::vector<size_t> offsets = {0};
    for (const size_t count : counts) offsets.push_back(offsets.back() + count);
    return offsets;
  }

  // Works in blocks, so that the results of the first half of the algorithm are still in a cache
  // for the second half.
  absl::Status reduce_in_blocks(BufferView data, Reduction reduction, std::string_view name) {
    const size_t block = has_levels() ? rounds_.block(levels_.across, Sends::kSame, data.dtype) *
                                            levels_.inside.members.size()
                                      : rounds_.block(all_, Sends::kSame, data.dtype);
    return run(CollectiveKind::kAllReduce, name, data, [&] {
      absl::Status status;
      for (size_t at = 0; at < data.count && size() > 1 && status.ok(); at += block) {
        const BufferView part = data.part(at, std::min(block, data.count - at));
        status = has_levels() ? reduce_by_levels(part, reduction)
                              : reduce_flat(all_, part, part, reduction);
      }
      return status;
    });
  }

  // Stores the combination of all members' `data` in `out` on every member of the subgroup. `out`
  // may be the same memory as `data`.
  absl::Status reduce_flat(const Subgroup& subgroup, ConstBufferView data, BufferView out,
                           Reduction reduction) {
    const BufferView own = slice_of(out, subgroup, subgroup.position);
    if (auto status = rounds_.reduce_slices(subgroup, data, own, reduction); !status.ok())
      return status;
    return rounds_.gather_slices(subgroup, out);
  }

  // Does a reduce-scatter within the node, an all-reduce across nodes and an all-gather within the
  // node. Partial sums of bf16 are fp32 until the last addition.
  absl::Status reduce_by_levels(BufferView data, Reduction reduction) {
    const BufferView own = slice_of(data, levels_.inside, levels_.inside.position);
    BufferView partial = own;
    if (own.dtype != DType::kF32) {
      partial_.resize(own.count);
      partial = partial_;
    }
    if (auto status = rounds_.reduce_slices(levels_.inside, data, partial, reduction); !status.ok())
      return status;
    if (auto status = reduce_flat(levels_.across, partial, own, reduction); !status.ok())
      return status;
    return rounds_.gather_slices(levels_.inside, data);
  }

  // Sends each slice once to every other node, and from there to the members of that node.
  absl::Status gather_by_levels(BufferView data) {
    const auto slice = [&](int member) { return slice_of(data, all_, member); };
    absl::Status status = rounds_.exchange(
        levels_.across, Sends::kSame, [&](int) { return slice(rank()); },
        [&](int position) { return slice(levels_.across.member(position)); });
    const auto own = static_cast<size_t>(levels_.inside.position);
    for (size_t node = 0; node < levels_.nodes.size() && status.ok(); ++node) {
      const std::vector<int>& members = levels_.nodes[node];
      status = rounds_.exchange(
          levels_.inside, Sends::kSame, [&](int) { return slice(members[own]); },
          [&](int position) { return slice(members[static_cast<size_t>(position)]); });
    }
    return status;
  }

  // Does the reverse: sums a node's contributions to a slice before it sends them to the node of
  // the slice's owner. Works in blocks, because the memory of the partial sums, one slice per node,
  // is not part of the plan. They are fp32 until the last addition.
  absl::Status scatter_by_levels(ConstBufferView data, BufferView out) {
    const size_t block = rounds_.block(levels_.across, Sends::kDifferent, DType::kF32);
    const size_t nodes = levels_.nodes.size();
    partial_.resize(nodes * std::min(block, out.count));
    absl::Status status;
    for (size_t at = 0; at < out.count && status.ok(); at += block) {
      const size_t count = std::min(block, out.count - at);
      const auto partial = [&](size_t node) {
        return BufferView(partial_).part(node * count, count);
      };
      for (size_t node = 0; node < nodes && status.ok(); ++node) {
        const auto of_member = [&](int position) {
          const int member = levels_.nodes[node][static_cast<size_t>(position)];
          return slice_of(data, all_, member).part(at, count);
        };
        status = rounds_.reduce(levels_.inside, of_member, partial(node), Reduction::kSum);
      }
      if (!status.ok()) break;
      status = rounds_.reduce(
          levels_.across, [&](int position) { return partial(static_cast<size_t>(position)); },
          out.part(at, count), Reduction::kSum);
    }
    return status;
  }

  std::shared_ptr<Transport> transport_;
  std::vector<int> nodes_;
  CollectiveTrace trace_;
  std::unique_ptr<Channel> channel_;
  Rounds rounds_;
  Subgroup all_;
  Levels levels_;
  std::vector<float> partial_;
};

}  // namespace

std::unique_ptr<ProcessGroup> make_group(std::shared_ptr<Transport> transport, GroupSpec spec,
                                         ProgressWriter* page) {
  const auto own = std::find(spec.members.begin(), spec.members.end(), transport->rank());
  MUSTER_CHECK(own != spec.members.end())
      << "rank " << transport->rank() << " is not in group " << spec.name;
  MUSTER_CHECK(spec.nodes.empty() || spec.nodes.size() == spec.members.size())
      << spec.nodes.size() << " nodes of " << spec.members.size() << " members";
  const auto rank = static_cast<int>(own - spec.members.begin());
  return std::make_unique<TransportGroup>(std::move(transport), std::move(spec), rank, page);
}

std::unique_ptr<ProcessGroup> make_world_group(std::shared_ptr<Transport> transport,
                                               std::string name, ProgressWriter* page) {
  GroupSpec spec{.name = std::move(name), .members = {}, .nodes = {}};
  spec.members.resize(static_cast<size_t>(transport->size()));
  std::iota(spec.members.begin(), spec.members.end(), 0);
  return make_group(std::move(transport), std::move(spec), page);
}

}  // namespace muster::trainer
