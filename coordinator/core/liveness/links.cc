#include "coordinator/core/liveness/links.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include <absl/strings/ascii.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>

#include "common/process/exit_code.h"
#include "common/text/absl_view.h"
#include "common/text/has_any.h"
#include "coordinator/core/blame/blame_text.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

// The host in "host:port"; an IPv6 address is in brackets.
std::string_view host_in(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

// The nodes of a job by their addresses. An address that several nodes have, such as that of a
// container bridge, has an empty name.
using NodesByAddress = std::map<std::string, WorkerName, std::less<>>;

NodesByAddress nodes_by_address(const RanksByWorker& ranks, const Fleet& fleet) {
  NodesByAddress nodes;
  for (const auto& [name, here] : ranks) {
    const Worker* worker = fleet.find(name);
    if (worker == nullptr) continue;
    std::set<std::string_view> addresses(worker->addresses.begin(), worker->addresses.end());
    addresses.insert(host_in(worker->rendezvous_address));
    for (const std::string_view address : addresses) {
      const auto [entry, is_new] = nodes.try_emplace(std::string(address), name);
      if (!is_new) entry->second = WorkerName();
    }
  }
  return nodes;
}

const WorkerName& worker_of(const Job& job, Rank rank) {
  return job.placement[static_cast<size_t>(rank.value())].worker;
}

bool is_within_reach(const WorkerName& name, const Fleet& fleet, Instant now) {
  const Worker* worker = fleet.find(name);
  return worker != nullptr && !worker->disconnected_at && !fleet.is_unreachable(*worker, now);
}

// A link between two nodes of the job.
struct NodeLink {
  WorkerName from, to;
  Rank rank{-1};
  const StalledLinks::Link* link = nullptr;
};

std::vector<NodeLink> links_between_nodes(const ReachView& view, const StalledLinks& links,
                                          const Fleet& fleet) {
  std::vector<NodeLink> found;
  if (links.empty()) return found;
  const NodesByAddress nodes = nodes_by_address(view.ranks, fleet);
  for (const auto& [rank, of_rank] : links.all()) {
    for (const StalledLinks::Link& link : of_rank) {
      const auto to = nodes.find(link.link.host);
      const WorkerName& from = worker_of(view.job, rank);
      if (to == nodes.end() || to->second.value().empty() || to->second == from) continue;
      found.push_back({from, to->second, rank, &link});
    }
  }
  return found;
}

std::string link_text(const NodeLink& found, const Job& job, Instant now) {
  const StalledLink& link = found.link->link;
  const bool is_v6 = link.host.find(':') != std::string::npos;
  return absl::StrCat(
      rank_and_node_text(found.rank.value(), job.placement),
      link.is_connecting ? " tries to connect to " : " sends to ", is_v6 ? "[" : "", link.host,
      is_v6 ? "]:" : ":", link.port,
      absl::StrFormat(", and has got no answer for %.1f s", to_seconds(now - found.link->since)));
}

using Pair = std::pair<WorkerName, WorkerName>;

// Returns the only node that all pairs have in common; an empty name if there is none, or if there
// are less than two pairs.
WorkerName common_node(const std::map<Pair, NodeLink>& pairs) {
  if (pairs.size() < 2) return WorkerName();
  for (const WorkerName& name : {pairs.begin()->first.first, pairs.begin()->first.second}) {
    if (std::ranges::all_of(pairs, [&](const auto& entry) {
          return entry.first.first == name || entry.first.second == name;
        }))
      return name;
  }
  return WorkerName();
}

std::string list_of_nodes(const std::vector<std::string>& names) {
  constexpr size_t kNodesShownMax = 4;
  const size_t shown = std::min(names.size(), kNodesShownMax);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + static_cast<ptrdiff_t>(shown), ", ");
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " others");
  return text;
}

// Texts with which connections that no host answers fail, in lower case. A peer whose process does
// not answer causes other texts, such as "Timed out waiting".
constexpr std::array<std::string_view, 4> kCutWords = {
    "connection timed out", "no route to host", "host is unreachable", "network is unreachable"};

bool is_part_of_address(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.';
}

// Returns whether the text has the address as a word of its own.
bool has_address(std::string_view text, std::string_view address) {
  for (size_t at = text.find(address); at != std::string_view::npos;
       at = text.find(address, at + 1)) {
    const size_t end = at + address.size();
    const bool begins = at == 0 || !is_part_of_address(text[at - 1]);
    if (begins && (end == text.size() || !is_part_of_address(text[end]))) return true;
  }
  return false;
}

}  // namespace

void StalledLinks::observe(Rank rank, const std::vector<StalledLink>& links, Instant now) {
  if (links.empty()) {
    if (!links_.empty()) links_.erase(rank);
    return;
  }
  std::vector<Link> newest;
  const std::vector<Link>& known = links_[rank];
  for (const StalledLink& link : links) {
    const auto same = std::ranges::find_if(
        known, [&](const Link& other) { return other.link.host == link.host; });
    newest.push_back({link, same == known.end() ? now : same->since});
  }
  links_[rank] = std::move(newest);
}

void StalledLinks::excuse(Duration time) {
  for (auto& [rank, links] : links_)
    for (Link& link : links) link.since += time;
}

std::optional<CutLink> find_cut_link(const ReachView& view, const StalledLinks& links,
                                     const Fleet& fleet, Instant now) {
  const Instant progress =
      view.hang.is_silent() ? view.hang.last_progress() : view.hang.last_step_or_phase();
  std::map<Pair, NodeLink> pairs;
  for (const NodeLink& found : links_between_nodes(view, links, fleet)) {
    if (progress > found.link->since || !is_within_reach(found.from, fleet, now) ||
        !is_within_reach(found.to, fleet, now))
      continue;
    const Pair pair = std::minmax(found.from, found.to);
    const auto [entry, is_new] = pairs.try_emplace(pair, found);
    if (!is_new && found.link->since < entry->second.link->since) entry->second = found;
  }
  if (pairs.empty()) return std::nullopt;
  const auto first = std::ranges::min_element(pairs, {}, [](const auto& entry) {
    return std::tuple(entry.second.link->link.is_connecting, entry.second.link->since, entry.first);
  });
  const NodeLink& link = first->second;
  CutLink cut;
  cut.since = link.link->since;
  cut.is_connecting = link.link->link.is_connecting;
  const std::string text = link_text(link, view.job, now);
  cut.node = common_node(pairs);
  if (!cut.node.value().empty()) {
    std::vector<std::string> others;
    for (const auto& [pair, of_pair] : pairs)
      others.push_back((pair.first == cut.node ? pair.second : pair.first).value());
    cut.sentence = absl::StrCat("node ", cut.node.value(), " and its peers ", list_of_nodes(others),
                                " cannot reach each other: ", text);
    return cut;
  }
  cut.node = first->first.first;
  cut.peer = first->first.second;
  cut.sentence = absl::StrCat("nodes ", cut.node.value(), " and ", cut.peer.value(),
                              " cannot reach each other: ", text);
  return cut;
}

Instant cut_link_due(const CutLink& cut, bool has_other_node, bool is_silent) {
  const Duration time = (has_other_node ? kLinkConfirm : kLinkWait) +
                        (cut.is_connecting ? kConnectWait : Duration::zero());
  return cut.since + (is_silent ? kSilentTimes : 1) * time;
}

Fault fault_of_cut_link(const Job& job, const CutLink& cut, int64_t unix_ns) {
  Fault fault;
  fault.worker = cut.node;
  fault.peer = cut.peer;
  fault.exit_code = to_int(ExitCode::kFailure);
  fault.kind = cut.peer.value().empty() ? IncidentKind::kWorkerLost : IncidentKind::kHang;
  fault.message = cut.sentence;
  fault.unix_ns = unix_ns;
  for (const RankState& rank : job.ranks) fault.last_step = std::max(fault.last_step, rank.step);
  return fault;
}

std::vector<WorkerName> confirmed_by_links(const ReachView& view, const StalledLinks& links,
                                           const Fleet& fleet, Duration loss_after, Instant now) {
  std::set<WorkerName> names;
  for (const NodeLink& found : links_between_nodes(view, links, fleet)) {
    const Worker* worker = fleet.find(found.to);
    if (worker == nullptr || !has_ranks(view.job, view.ranks, *worker) ||
        !is_within_reach(found.from, fleet, now))
      continue;
    const Duration silence = std::max(loss_after, fleet.patience_with(*worker));
    if (fleet.is_silent_for(*worker, silence, now)) names.insert(found.to);
  }
  return {names.begin(), names.end()};
}

void name_cut_link(const Job& job, const RanksByWorker& ranks, const Fleet& fleet, Instant now,
                   Fault& fault) {
  if (fault.kind != IncidentKind::kRankDied) return;
  std::optional<NodesByAddress> nodes;
  for (const RankExit& exit : job.exits) {
    const bool is_victims = fault.rank.value() < 0 || ended_as(fault, ExitCode::kPeerLost);
    if ((fault.rank != exit.rank && !is_victims) || (!is_victim(exit) && !may_be_victim(exit)) ||
        !has_any(absl::AsciiStrToLower(exit.detail), kCutWords))
      continue;
    if (!nodes) nodes = nodes_by_address(ranks, fleet);
    const WorkerName& from = worker_of(job, exit.rank);
    for (const auto& [address, to] : *nodes) {
      if (to.value().empty() || to == from || !has_address(exit.detail, address) ||
          !is_within_reach(to, fleet, now))
        continue;
      fault.rank = Rank(-1);
      fault.worker = from;
      fault.peer = to;
      fault.message = absl::StrCat("nodes ", from.value(), " and ", to.value(),
                                   " cannot reach each other: ", fault.message);
      return;
    }
  }
}

}  // namespace muster::coordinator
