// The room for jobs, claims of waiting jobs on hosts, and backfill: jobs that start before an
// earlier one of the queue without delaying it.
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/placement/placement_pass.h"
#include "coordinator/core/records/sizes.h"

namespace muster::coordinator {

const PlacementPass::Room& PlacementPass::room_of(const Job& job) {
  const auto [entry, is_new] = rooms_.try_emplace(shape_of(job.spec, 0));
  Room& room = entry->second;
  if (!is_new) return room;
  PlacementRequest request{job.spec.ranks_per_node, {}, {}, {}, job.spec.gpus_per_rank};
  request.selector = job.spec.node_selector;
  request.tolerations = job.spec.tolerations;
  for (const Host& host : hosts_) {
    room.when_empty += request.would_have_room(host) ? 1 : 0;
    room.unclaimed += host.claim < 0 && request.has_room(host) ? 1 : 0;
    room.gpus_missing = room.gpus_missing || (host.slots_free >= job.spec.ranks_per_node &&
                                              request.is_suited(host) && !request.has_room(host));
  }
  for (const std::vector<Host>* some : {&away_, &upgraded_later_})
    room.away += std::ranges::count_if(
        *some, [&](const Host& host) { return request.would_have_room(host); });
  return room;
}

// Only the first job of a shape claims hosts: it leaves none for the others.
void PlacementPass::claim(const Job& job, std::ptrdiff_t held) {
  blocked_ = true;
  if (!claimed_.insert(shape_of(job.spec, 0)).second) return;
  Claim claim{job.id, request_of(job, time_.unix_ns), fewest_nodes(job), held};
  const auto index = static_cast<int32_t>(claims_.size());
  bool has_claim = false;
  for (Host& host : hosts_) {
    if (host.claim >= 0 || !claim.request.would_have_room(host)) continue;
    host.claim = index;
    has_claim = true;
  }
  if (!has_claim) return;
  claims_.push_back(std::move(claim));
  decisions_.clear();
  rooms_.clear();
}

std::vector<Host> PlacementPass::unclaimed_hosts() const {
  std::vector<Host> hosts;
  std::ranges::copy_if(hosts_, std::back_inserter(hosts),
                       [](const Host& host) { return host.claim < 0; });
  return hosts;
}

// Returns the latest time at which the claiming job can start: when enough running jobs have
// reached their time limits. Workers that are away may return at any time. Returns nullopt if jobs
// without a limit, or workers that have to be upgraded, may keep it waiting.
std::optional<Instant> PlacementPass::latest_start(const Claim& claim) const {
  if (fleet_.is_registering(time_.now)) return time_.now;
  std::map<WorkerName, Host> busy;
  std::ptrdiff_t free = claim.held + std::ranges::count_if(away_, [&](const Host& host) {
                          return claim.request.would_have_room(host);
                        });
  for (const Host& host : hosts_) {
    if (claim.request.has_room(host))
      ++free;
    else
      busy.emplace(host.name, host);
  }
  if (free >= claim.nodes) return time_.now;
  std::vector<std::pair<Instant, JobId>> ends;
  for (const auto& [id, end] : ends_) ends.emplace_back(end, id);
  std::ranges::sort(ends);
  for (const auto& [end, id] : ends) {
    const Job& job = jobs_.at(id);
    for (const WorkerName& name : nodes_of(job.placement)) {
      const auto host = busy.find(name);
      if (host == busy.end()) continue;
      const NodeUse use = use_of(job.spec, fleet_.find(name));
      host->second.slots_free += use.slots;
      host->second.gpus_free += use.gpus;
      if (!claim.request.has_room(host->second)) continue;
      ++free;
      busy.erase(host);
    }
    if (free >= claim.nodes) return end;
  }
  return std::nullopt;
}

// Returns whether `end` is before the latest start of the claiming job.
bool PlacementPass::is_over_before(Instant end, Claim& claim) {
  if (!claim.start) claim.start = latest_start(claim);
  return end <= std::max(claim.earliest, claim.start->value_or(time_.now + kBackfillWindow));
}

void PlacementPass::claim_from(const Job& job, Instant earliest) {
  const size_t before = claims_.size();
  if (may_fit_later(job)) claim(job, 0);
  if (claims_.size() > before) claims_.back().earliest = earliest;
}

PlacementPass::Decision PlacementPass::place_before_claims(const Job& job, Duration limit) {
  const Instant end = time_.now + limit + kEndMargin;
  if (std::ranges::all_of(claims_, [&](Claim& claim) { return is_over_before(end, claim); }))
    return backfill(job, limit);
  Decision decision;
  decision.has_claim = true;
  return decision;
}

// Places new and formerly backfilled jobs. Another one with former nodes, or nodes to avoid,
// retains its place in the queue.
PlacementPass::Decision PlacementPass::backfill(const Job& job, std::optional<Duration> limit) {
  Decision decision;
  decision.text = std::string(kWaitsBehind);
  decision.has_claim = true;
  if (!limit || (job.attempt > Attempt(0) && !job.is_backfilled)) return decision;
  const Shape shape = shape_of(job.spec, job.spec.nodes);
  const auto known = no_backfill_.find(shape);
  if (known != no_backfill_.end() && known->second <= *limit) return decision;
  const Instant end = time_.now + *limit + kEndMargin;
  const PlacementRequest request = request_with_places(job, fleet_, time_.unix_ns);
  std::vector<bool> is_free_until(claims_.size());
  for (size_t i = 0; i < claims_.size(); ++i) is_free_until[i] = is_over_before(end, claims_[i]);
  std::vector<Host> hosts;
  std::set<WorkerName> unknown;  // hosts of claims whose start is not known
  for (const Host& host : hosts_) {
    if (!request.has_room(host) || request.avoid.contains(host.name)) continue;
    if (host.claim >= 0) {
      const auto claim = static_cast<size_t>(host.claim);
      if (!is_free_until[claim]) continue;
      if (!*claims_[claim].start) unknown.insert(host.name);
    }
    hosts.push_back(host);
  }
  if (std::ssize(hosts) < job.spec.nodes) {
    if (request.avoid.empty()) no_backfill_.insert_or_assign(shape, *limit);
    return decision;
  }
  Placement placement = coordinator::place(request, job.spec.nodes, hosts);
  no_backfill_.erase(shape);
  take(job.spec, placement.ranks);
  decision.ranks = std::move(placement.ranks);
  decision.is_backfilled = true;
  const bool is_known = std::ranges::none_of(
      decision.ranks, [&](const RankPlacement& rank) { return unknown.contains(rank.worker); });
  decision.text =
      is_known ? "; it ends by its time limit before the jobs ahead of it in the queue can start"
               : absl::StrCat("; it ends by its time limit within ",
                              kBackfillWindow / std::chrono::hours(1),
                              " h, and the start of the jobs ahead of it in the queue is unknown");
  return decision;
}

}  // namespace muster::coordinator
