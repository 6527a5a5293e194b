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
#include "common/text/error_family.h"
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

// Returns whether the worker reports, so that its evidence is new and its host runs.
bool is_within_reach(const WorkerName& name, const Fleet& fleet, Instant now) {
  const Worker* worker = fleet.find(name);
  return worker != nullptr && worker->connected && worker->slots > 0 &&
         worker->last_message + fleet.silence_max() > now && fleet.judged_from(*worker) <= now;
}

Instant confirmed_at(const StalledLinks::Link& link) {
  return link.repeated_at == StalledLinks::kNever ? StalledLinks::kNever
                                                  : link.repeated_at + kAnswerTime;
}

std::string link_text(const StalledLinks::Link& found, Rank rank, const Job& job, Instant now) {
  const StalledLink& link = found.link;
  const bool is_v6 = link.host.find(':') != std::string::npos;
  return absl::StrCat(
      rank_and_node_text(rank.value(), job.placement),
      link.is_connecting ? " tries to connect to " : " sends to ", is_v6 ? "[" : "", link.host,
      is_v6 ? "]:" : ":", link.port,
      absl::StrFormat(", and has got no answer for %.1f s", to_seconds(now - found.since)));
}

using Pair = std::pair<WorkerName, WorkerName>;

// The link of a pair that shows most.
struct PairLink {
  const StalledLinks::Link* link = nullptr;
  Rank rank{-1};

  bool is_connecting() const { return link->link.is_connecting; }
  auto order() const { return std::tuple(is_connecting(), confirmed_at(*link), link->since); }
};

std::map<Pair, PairLink> cut_pairs(const ReachView& view, const StalledLinks& links,
                                   const Fleet& fleet, Instant now) {
  std::map<Pair, PairLink> pairs;
  for (const auto& [rank, of_rank] : links.all()) {
    for (const StalledLinks::Link& link : of_rank) {
      // The job completed a step or changed its phase without the link.
      if (view.hang.last_step_or_phase() > link.since) continue;
      const PairLink found{&link, rank};
      const auto [entry, is_new] = pairs.try_emplace(std::minmax(link.from, link.to), found);
      if (!is_new && found.order() < entry->second.order()) entry->second = found;
    }
  }
  std::erase_if(pairs, [&](const auto& entry) {
    return !is_within_reach(entry.first.first, fleet, now) ||
           !is_within_reach(entry.first.second, fleet, now);
  });
  return pairs;
}

// Returns the only node that all pairs with open connections have in common; an empty name if there
// is none, or if there are less than two such pairs.
WorkerName common_node(const std::map<Pair, PairLink>& pairs) {
  std::vector<Pair> open;
  for (const auto& [pair, link] : pairs)
    if (!link.is_connecting()) open.push_back(pair);
  if (open.size() < 2) return WorkerName();
  for (const WorkerName& name : {open[0].first, open[0].second}) {
    if (std::ranges::all_of(
            open, [&](const Pair& pair) { return pair.first == name || pair.second == name; }))
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
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == ':' || c == '-' ||
         c == '_';
}

// Returns the node whose address is in the text, other than `from` and within reach; an empty name
// if there is none. The address may be followed by a port.
WorkerName node_in_text(std::string_view text, const NodesByAddress& nodes, const WorkerName& from,
                        const Fleet& fleet, Instant now) {
  const auto is_other = [&](const NodesByAddress::const_iterator& entry) {
    return entry != nodes.end() && !entry->second.value().empty() && entry->second != from &&
           is_within_reach(entry->second, fleet, now);
  };
  while (!text.empty()) {
    const auto begin = std::ranges::find_if(text, is_part_of_address);
    const auto end = std::find_if_not(begin, text.end(), is_part_of_address);
    std::string_view word(begin, end);
    text = std::string_view(end, text.end());
    while (word.ends_with(':') || word.ends_with('.')) word.remove_suffix(1);
    if (const auto node = nodes.find(word); is_other(node)) return node->second;
    const size_t colon = word.find(':');
    if (colon == std::string_view::npos || colon != word.rfind(':')) continue;
    if (const auto node = nodes.find(word.substr(0, colon)); is_other(node)) return node->second;
  }
  return WorkerName();
}

}  // namespace

const NodesByAddress& StalledLinks::nodes(const RanksByWorker& ranks, const Fleet& fleet) {
  if (!nodes_) nodes_ = nodes_by_address(ranks, fleet);
  return *nodes_;
}

void StalledLinks::observe(const ReachView& view, Rank rank, const std::vector<StalledLink>& links,
                           const Fleet& fleet, Instant now) {
  if (links.empty()) {
    if (!links_.empty()) links_.erase(rank);
    return;
  }
  const NodesByAddress& by_address = nodes(view.ranks, fleet);
  const WorkerName& from = worker_of(view.job, rank);
  std::vector<Link> newest;
  for (const StalledLink& link : links) {
    const auto to = by_address.find(link.host);
    if (to == by_address.end() || to->second.value().empty() || to->second == from) continue;
    Link fresh{link, from, to->second, now, link.repetitions};
    const auto known = links_.find(rank);
    if (known != links_.end()) {
      // Fewer repetitions: the other host has answered since, or this is another connection.
      const auto same = std::ranges::find_if(known->second, [&](const Link& other) {
        return other.link.host == link.host && other.link.is_connecting == link.is_connecting &&
               other.link.repetitions <= link.repetitions;
      });
      if (same != known->second.end()) {
        fresh.since = same->since;
        fresh.repetitions = same->repetitions;
        fresh.repeated_at = same->repeated_at;
        // More than before, and more than at the end of the last excuse.
        if (link.repetitions > std::max(same->link.repetitions, fresh.repetitions))
          fresh.repeated_at = now;
      }
    }
    newest.push_back(std::move(fresh));
  }
  if (newest.empty())
    links_.erase(rank);
  else
    links_[rank] = std::move(newest);
}

void StalledLinks::excuse(Duration time) {
  for (auto& [rank, links] : links_) {
    for (Link& link : links) {
      link.since += time;
      link.repetitions = link.link.repetitions;
      link.repeated_at = kNever;
    }
  }
}

std::optional<CutLink> find_cut_link(const ReachView& view, const StalledLinks& links,
                                     const Fleet& fleet, Instant now) {
  if (links.empty()) return std::nullopt;
  const std::map<Pair, PairLink> pairs = cut_pairs(view, links, fleet, now);
  if (pairs.empty()) return std::nullopt;
  const auto first = std::ranges::min_element(
      pairs, {}, [](const auto& entry) { return std::tuple(entry.second.order(), entry.first); });
  const StalledLinks::Link& link = *first->second.link;
  CutLink cut;
  // Background threads and other ranks may progress for some time without the link.
  cut.since = std::max(link.since, view.hang.last_progress());
  cut.confirmed_at = confirmed_at(link);
  cut.is_connecting = link.link.is_connecting;
  const std::string text = link_text(link, first->second.rank, view.job, now);
  cut.node = common_node(pairs);
  if (!cut.node.value().empty()) {
    std::vector<std::string> others;
    std::vector<Instant> confirmed;
    for (const auto& [pair, of_pair] : pairs) {
      if (of_pair.is_connecting()) continue;
      others.push_back((pair.first == cut.node ? pair.second : pair.first).value());
      confirmed.push_back(confirmed_at(*of_pair.link));
    }
    // One pair alone shows nothing about the node.
    std::ranges::sort(confirmed);
    cut.confirmed_at = confirmed[1];
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

Instant cut_link_due(const CutLink& cut, const HangDetector& hang, bool has_other_node) {
  const Duration step = hang.step_time();
  const Duration wait = (has_other_node && step > Duration::zero() ? kLinkConfirm : kLinkWait) +
                        (cut.is_connecting ? kConnectWait : Duration::zero());
  const int silent_times = cut.is_connecting ? kSilentConnectTimes : kSilentTimes;
  Instant due = cut.since + (hang.is_silent() ? silent_times : 1) * wait;
  if (step > Duration::zero()) {
    // A step may take longer than those before, and the program may evaluate or save in it.
    const Duration usual = std::max(step, hang.longest_pause());
    due = std::max(due, hang.last_step_or_phase() + usual + usual / 4);
  }
  // A link that was back by then carries nothing until the next repetition.
  return cut.confirmed_at < due + kAnswerTime ? StalledLinks::kNever : cut.confirmed_at;
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

std::vector<WorkerName> confirmed_by_links(const ReachView& view, const Reach& reach,
                                           const StalledLinks& links, const Fleet& fleet,
                                           Duration loss_after, Instant now) {
  std::set<WorkerName> names;
  if (reach.unreachable.empty() || fleet.is_cut_off()) return {};
  for (const auto& [rank, of_rank] : links.all()) {
    for (const StalledLinks::Link& link : of_rank) {
      const Worker* worker = fleet.find(link.to);
      if (names.contains(link.to) || !reach.unreachable.contains(link.to) || worker == nullptr ||
          link.link.is_connecting || confirmed_at(link) > now ||
          view.hang.last_step_or_phase() > link.since ||
          !has_ranks(view.job, view.ranks, *worker) || fleet.judged_from(*worker) > now ||
          run_until(view, *worker, fleet) > now || !is_within_reach(link.from, fleet, now))
        continue;
      const Duration silence = std::max(loss_after, fleet.patience_with(*worker));
      if (fleet.is_silent_for(*worker, silence, now) &&
          confirmed_at(link) >= worker->last_message + silence + kAnswerTime)
        names.insert(link.to);
    }
  }
  return {names.begin(), names.end()};
}

void name_cut_link(const ReachView& view, StalledLinks& links, const Fleet& fleet, Instant now,
                   Fault& fault) {
  if (fault.kind != IncidentKind::kRankDied || fault.family == kNetworkLinkLost) return;
  constexpr int kExitsMax = 16;
  int examined = 0;
  for (const RankExit& exit : view.job.exits) {
    const bool is_victims = fault.rank.value() < 0 || ended_as(fault, ExitCode::kPeerLost);
    if ((fault.rank != exit.rank && !is_victims) || (!is_victim(exit) && !may_be_victim(exit)) ||
        !has_any(absl::AsciiStrToLower(exit.detail), kCutWords))
      continue;
    if (++examined > kExitsMax) return;
    const WorkerName& from = worker_of(view.job, exit.rank);
    if (!is_within_reach(from, fleet, now)) continue;
    const WorkerName to =
        node_in_text(exit.detail, links.nodes(view.ranks, fleet), from, fleet, now);
    if (to.value().empty()) continue;
    fault.rank = Rank(-1);
    fault.worker = from;
    fault.peer = to;
    fault.message = absl::StrCat("nodes ", from.value(), " and ", to.value(),
                                 " cannot reach each other: ", fault.message);
    return;
  }
}

}  // namespace muster::coordinator
