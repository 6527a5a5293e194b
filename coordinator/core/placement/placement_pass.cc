#include "coordinator/core/placement/placement_pass.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/text/absl_view.h"
#include "coordinator/core/fleet/unkillable.h"
#include "coordinator/core/placement/domain_text.h"
#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/placement/network.h"
#include "coordinator/core/placement/waiting_text.h"
#include "coordinator/core/records/list_text.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

// Returns the largest size of the job for which there is room; if there is room for none, the size
// to wait for.
int32_t size_to_start(const Job& job, const PlacementRequest& request,
                      const std::vector<Host>& hosts) {
  return std::max(fewest_nodes(job), largest_size(job.spec, nodes_free(request, hosts)));
}

void insert_in_order(std::vector<Host>& hosts, const Host& host) {
  hosts.insert(std::upper_bound(hosts.begin(), hosts.end(), host, comes_before), host);
}

}  // namespace

bool may_hold_workers(const Job& job) {
  if (!is_live(job.state)) return false;
  return !job.held.empty() ||
         (!job.cancel_requested && (job.spec.spares > 0 || nodes_now(job) < job.spec.nodes));
}

bool any_job_needs_workers(const JobQueue& queue, const JobTable& jobs,
                           const std::vector<JobId>& live) {
  return queue.size() > 0 ||
         std::ranges::any_of(live, [&](const JobId id) { return may_hold_workers(jobs.at(id)); });
}

PlacementPass::PlacementPass(const CoreOptions& options, const CoreTime& time, const JobTable& jobs,
                             const std::vector<JobId>& live, const Fleet& fleet,
                             const NodeBook& nodes)
    : options_(options), time_(time), jobs_(jobs), fleet_(fleet), nodes_(nodes) {
  const NodeUses uses = uses_of_ranks(jobs, live, fleet);
  const NodeUses held = uses_held(jobs, fleet);
  for (const auto& [name, worker] : fleet.all()) {
    if (!worker.connected || worker.given_up) continue;
    if (worker.leaving) {
      leaving_.push_back(name.value());
    } else if (!fleet.takes_ranks(worker)) {
      outdated_.push_back(name.value());
    } else {
      Host host = host_of(worker, uses.at(name));
      host.held = held.contains(name);
      (nodes.is_sound(name) && worker.stuck.empty() ? hosts_ : excluded_)
          .push_back(std::move(host));
    }
  }
  find_away();
  std::vector<Host*> all;
  for (std::vector<Host>* some : {&hosts_, &excluded_})
    for (Host& host : *some) all.push_back(&host);
  gather_domains(std::move(all));
  for (std::vector<Host>* some : {&hosts_, &excluded_}) {
    std::sort(some->begin(), some->end(), comes_before);
  }
}

// A worker is away if it is disconnected, leaving or being checked, or if its lease has ended a
// short time ago; but not if its node is excluded otherwise than as a last resort. The time at
// which a worker of another version returns is not known.
void PlacementPass::find_away() {
  const auto add = [&](const Worker& worker, std::vector<Host>& hosts) {
    const NodeRecord* node = nodes_.find(worker.name);
    const bool is_barred = node != nullptr && node->excluded && !rule_of(node->suspicion).is_soft;
    if (worker.slots > 0 && worker.stuck.empty() && !is_barred)
      hosts.push_back(host_of(worker, {}));
  };
  for (const auto& [name, worker] : fleet_.all()) {
    if (worker.leaving || fleet_.is_away(name))
      add(worker, away_);
    else if (fleet_.awaits_upgrade(worker, time_.now))
      add(worker, upgraded_later_);
  }
  for (const auto& [name, worker] : fleet_.absent())
    if (time_.now < worker.last_message + options_.reservation_time) add(worker, away_);
}

PlacementPass::Decision PlacementPass::place(const Job& job, const JobQueue::Entry& entry,
                                             std::optional<Duration> limit) {
  Decision decision;
  // A job with a history has former nodes, or nodes to avoid.
  const bool is_new = job.attempt == Attempt(0) && job.held.empty() && job.previous_nodes.empty();
  const bool waits_for_claim =
      may_fit_later(job) ||
      (is_new && claimed_.contains(shape_of(job.spec, 0)) && may_fit_soon(job));
  if (blocked_ && waits_for_claim && room_of(job).unclaimed < fewest_nodes(job)) {
    claim(job, 0);
    return backfill(job, limit);
  }
  if (!is_new) return decide(job, entry);
  const Shape shape = shape_of(job.spec, job.spec.nodes);
  if (const auto known = decisions_.find(shape); known != decisions_.end()) return known->second;
  decision = decide(job, entry);
  const bool waits = decision.ranks.empty() && decision.held.empty() && decision.checks.empty();
  if (waits && !claimed_.contains(shape_of(job.spec, 0))) decisions_.emplace(shape, decision);
  return decision;
}

PlacementPass::Decision PlacementPass::decide(const Job& job, const JobQueue::Entry& entry) {
  Decision decision;
  checks_.clear();
  const int32_t fewest = fewest_nodes(job);
  const bool soon = waits_for_all_nodes(job, entry);
  const bool whole = fewest == job.spec.nodes || soon;
  std::string remark;
  Placement placement = can_never_fit(job) ? Placement{} : find_place(job, whole, remark);
  decision.checks = checks_;
  await_checks();
  if (placement.fit == Fit::kNow) {
    take(job.spec, placement.ranks);
    decision.ranks = std::move(placement.ranks);
    decision.text = std::move(remark);
    return decision;
  }
  if (blocked_ && may_fit_later(job)) {  // it avoids some of the unclaimed hosts
    claim(job, 0);
    decision.text = std::string(kWaitsBehind);
    decision.has_claim = true;
    return decision;
  }
  const PlacementRequest request = request_with_places(job, fleet_, time_.unix_ns);
  const std::string lacking = lacking_domains_text(request, hosts_);  // before reservations
  const WorkerName awaited = node_to_wait_for(job, entry);
  if (soon || !awaited.value().empty()) decision.held = hold_own_nodes(job);
  const bool is_busy = placement.fit == Fit::kLater;
  const bool is_short = !is_busy && may_fit_soon(job);
  decision.has_claim = is_busy || is_short;
  if (decision.has_claim) claim(job, std::ssize(decision.held));
  decision.text = absl::StrCat(
      "waits for ", need_text(job.spec, fewest, room_of(job).gpus_missing),
      is_busy            ? ": they are busy"
      : leaving_.empty() ? ": fewer are connected"
                         : ": fewer are connected and stay",
      fitting_text(job.spec, request, hosts_), passed_over_text(leaving_, "leaving"),
      passed_over_text(outdated_, "of another version and only ends what it runs"), lacking, remark,
      is_busy || job.spec.gpus_per_rank <= 0 ? "" : without_gpus_text(),
      held_text(decision.held.size(), awaited, options_.reservation_time),
      is_short ? "; later jobs wait behind it while the missing ones may return" : "");
  return decision;
}

// Returns the causes for which workers have no GPUs, as an addition to the job's reason. Does not
// contain the number of workers, because the job's reason would then change whenever a worker
// connects or leaves.
std::string PlacementPass::without_gpus_text() const {
  constexpr size_t kReasonsMax = 2;  // a reason is one line
  std::map<std::string_view, std::vector<std::string_view>> workers_of;
  for (const Host& host : hosts_)
    if (const std::string& why = fleet_.at(host.name).no_gpus_because; !why.empty())
      workers_of[why].push_back(host.name.value());
  // Lists the causes with the fewest workers, because such a cause can be repaired; many workers
  // without GPUs may be a separate pool.
  std::vector<std::string_view> reasons;
  for (const auto& [why, names] : workers_of) reasons.push_back(why);
  std::ranges::stable_sort(reasons, {}, [&](auto why) { return workers_of.at(why).size(); });
  if (reasons.size() > kReasonsMax) reasons.resize(kReasonsMax);
  std::string text;
  for (const std::string_view why : reasons) {
    const auto& names = workers_of.at(why);
    absl::StrAppend(&text, "; ", av(names.front()), names.size() == 1 ? " has" : " and others have",
                    " no GPUs: ", av(why));
  }
  return text;
}

// Returns true only if find_place() would not find a place for the job even on an empty fleet, and
// would have nothing to remark.
bool PlacementPass::can_never_fit(const Job& job) {
  return excluded_.empty() && room_of(job).when_empty < fewest_nodes(job);
}

// Returns whether the job has room on the empty fleet without excluded nodes.
bool PlacementPass::may_fit_later(const Job& job) {
  return room_of(job).when_empty >= fewest_nodes(job);
}

// Returns whether the job has room on the empty fleet together with workers that may return. A job
// between two attempts reserves its own nodes instead.
bool PlacementPass::may_fit_soon(const Job& job) {
  if (fleet_.is_registering(time_.now)) return true;
  const Room& room = room_of(job);
  return job.attempt == Attempt(0) && room.when_empty + room.away >= job.spec.nodes;
}

// Counts the nodes whose checks the current decision requests as workers that may return.
void PlacementPass::await_checks() {
  if (checks_.empty()) return;
  decisions_.clear();
  rooms_.clear();
  for (const WorkerName& name : checks_)
    if (!fleet_.is_away(name)) away_.push_back(host_of(fleet_.at(name), {}));
}

bool PlacementPass::is_check_requested(const WorkerName& name) const {
  return std::ranges::find(checks_, name) != checks_.end();
}

bool PlacementPass::is_away(const WorkerName& name) const {
  return fleet_.is_away(name) || is_check_requested(name);
}

bool PlacementPass::waits_for_all_nodes(const Job& job, const JobQueue::Entry& entry) const {
  return time_.now < entry.full_size_until &&
         std::ranges::any_of(job.previous_nodes,
                             [this](const WorkerName& name) { return fleet_.is_away(name); });
}

// Returns a former node of the job that may return within minutes. Returns an empty name if there
// is no such node, if the job has waited long enough, or if most of its nodes are away, because the
// wait would then cost later jobs more than it saves. The job does not wait for a node that only a
// user can admit.
WorkerName PlacementPass::node_to_wait_for(const Job& job, const JobQueue::Entry& entry) const {
  if (time_.now >= entry.reserve_until) return WorkerName();
  std::vector<WorkerName> away;
  std::ranges::copy_if(job.previous_nodes, std::back_inserter(away), [this](const auto& name) {
    return !awaits_admission(nodes_, name) && is_away(name);
  });
  const bool most = 2 * away.size() > job.previous_nodes.size();
  return away.empty() || most ? WorkerName() : away.front();
}

// Tries the full size first, on excluded nodes if necessary, because an excluded node that has
// passed its check costs less than a smaller size. `remark` describes these nodes.
Placement PlacementPass::place_among(const Job& job, bool whole, const std::vector<Host>& hosts,
                                     const std::vector<Host>& excluded, std::string& remark) {
  const PlacementRequest request = request_with_places(job, fleet_, time_.unix_ns);
  const auto at_size = [&](int32_t nodes) {
    Placement placement = coordinator::place(request, nodes, hosts);
    if (placement.fit == Fit::kNever && !excluded.empty())
      placement = place_as_last_resort(job, nodes, hosts, excluded, remark);
    return placement;
  };
  Placement placement = at_size(job.spec.nodes);
  if (placement.fit == Fit::kNow || whole) return placement;
  remark.clear();
  return at_size(size_to_start(job, request, hosts));
}

// Tries first without the nodes that the job avoids, on which the attempt would fail as before.
// Excluded nodes or a smaller size are preferred to avoided nodes.
Placement PlacementPass::find_place(const Job& job, bool whole, std::string& remark) {
  const std::vector<Host> unclaimed = blocked_ ? unclaimed_hosts() : std::vector<Host>();
  const std::vector<Host>& hosts = blocked_ ? unclaimed : hosts_;
  // Excluded hosts are the last resort of a job for which all sound ones together are too few.
  const std::vector<Host> none;
  const std::vector<Host>& excluded = blocked_ && may_fit_later(job) ? none : excluded_;
  const std::set<WorkerName> avoided = nodes_to_avoid(job, time_.unix_ns);
  if (avoided.empty()) return place_among(job, whole, hosts, excluded, remark);
  const auto without = [&](std::vector<Host> some) {
    std::erase_if(some, [&](const Host& host) { return avoided.contains(host.name); });
    return some;
  };
  const std::vector<Host> others = without(excluded);
  Placement placement = place_among(job, whole, without(hosts), others, remark);
  // The job can start smaller, or one of the other nodes may answer within seconds.
  const bool waits = (whole && fewest_nodes(job) < job.spec.nodes) ||
                     std::ranges::any_of(others, [this](const Host& host) {
                       return fleet_.at(host.name).check.id != 0 || is_check_requested(host.name);
                     });
  if (placement.fit == Fit::kNow || waits) return placement;
  remark.clear();
  return place_among(job, whole, hosts, excluded, remark);
}

// Places a job that has no placement without excluded nodes. Uses as few excluded nodes as
// possible, and requests checks of the nodes that still have to pass one. `remark` names these
// nodes.
Placement PlacementPass::place_as_last_resort(const Job& job, int32_t nodes,
                                              const std::vector<Host>& hosts,
                                              const std::vector<Host>& excluded,
                                              std::string& remark) {
  const PlacementRequest request = request_with_places(job, fleet_, time_.unix_ns);
  Placement placement;
  std::vector<Host> all = hosts;
  std::vector<std::string> others;  // cannot be used yet
  std::vector<WorkerName> unchecked;
  for (const Host& host : excluded) {
    const Worker& worker = fleet_.at(host.name);
    if (!worker.stuck.empty()) {
      others.push_back(stuck_text(worker));
      continue;
    }
    const NodeRecord& node = *nodes_.find(host.name);
    const bool is_hard = node.excluded && !rule_of(node.suspicion).is_soft;
    if (placement.fit == Fit::kNever && may_be_last_resort(nodes_, worker, time_.now)) {
      insert_in_order(all, host);
      placement = coordinator::place(request, nodes, all);
      continue;
    }
    others.push_back(node.excluded ? exclusion_text(node)
                                   : absl::StrCat(node.worker.value(), " (being checked)"));
    if (!is_hard && request.would_have_room(host)) unchecked.push_back(host.name);
  }
  if (placement.fit == Fit::kNow) {
    std::vector<std::string> taken;
    for (const RankPlacement& rank : placement.ranks) {
      if (rank.local_rank == 0 && !nodes_.is_sound(rank.worker))
        taken.push_back(exclusion_text(*nodes_.find(rank.worker)));
    }
    if (!taken.empty())
      remark = absl::StrCat("; only excluded nodes have room: ", list_text(taken));
  } else if (placement.fit == Fit::kNever) {
    for (const WorkerName& name : unchecked) {
      const std::optional<Instant>& failed = fleet_.at(name).check.failed;
      const bool is_due = !failed || *failed + kCheckAgain <= time_.now;
      if (is_due && !is_check_requested(name)) checks_.push_back(name);
    }
    if (!others.empty()) remark = absl::StrCat("; left out: ", list_text(others));
  }
  return placement;
}

void PlacementPass::take(const JobSpec& spec, const std::vector<RankPlacement>& ranks) {
  decisions_.clear();
  rooms_.clear();
  std::map<WorkerName, int32_t> taken;
  for (const RankPlacement& rank : ranks) ++taken[rank.worker];
  for (std::vector<Host>* some : {&hosts_, &excluded_}) {
    for (Host& host : *some) {
      if (const auto here = taken.find(host.name); here != taken.end()) {
        host.slots_free -= here->second;
        host.gpus_free -= here->second * gpus_of_rank(spec.gpus_per_rank, host.gpus, host.slots);
      }
    }
  }
}

void PlacementPass::reserve(const PlacementRequest& request, const std::vector<WorkerName>& names) {
  if (names.empty()) return;
  decisions_.clear();
  rooms_.clear();
  const std::set<WorkerName> reserved(names.begin(), names.end());
  for (Host& host : hosts_) {
    if (!reserved.contains(host.name)) continue;
    host.slots_free -= request.ranks_per_node;
    host.gpus_free -= request.gpus_of(host);
  }
}

std::vector<WorkerName> PlacementPass::hold_own_nodes(const Job& job) {
  std::set<WorkerName> own(job.previous_nodes.begin(), job.previous_nodes.end());
  own.insert(job.held.begin(), job.held.end());
  std::vector<WorkerName> free;
  const PlacementRequest request = request_of(job, time_.unix_ns);
  for (const Host& host : hosts_)
    if (own.contains(host.name) && request.has_room(host)) free.push_back(host.name);
  reserve(request, free);
  return free;
}

// Returns whether all present nodes of the job could take its ranks again. A job whose attempt is
// ended so that it can grow is placed again, and must not lose its own nodes.
bool PlacementPass::can_reuse_its_nodes(const Job& job) const {
  return std::ranges::all_of(nodes_of(job.placement), [this](const WorkerName& name) {
    const Worker* worker = fleet_.find(name);
    return worker != nullptr && fleet_.takes_ranks(*worker) && worker->stuck.empty() &&
           (nodes_.is_sound(name) || may_be_last_resort(nodes_, *worker, time_.now));
  });
}

PlacementPass::More PlacementPass::hold_more_nodes(const Job& job) {
  const int32_t now = nodes_now(job);
  if (job.cancel_requested) return {{}, now};
  const bool may_grow = now < job.spec.nodes && !blocked_ && can_reuse_its_nodes(job);
  const PlacementRequest request = request_with_places(job, fleet_, time_.unix_ns);
  More more;
  more.held = choose_held(request, (may_grow ? job.spec.nodes - now : 0) + job.spec.spares, hosts_);
  more.nodes = may_grow ? std::max(now, largest_size(job.spec, now + std::ssize(more.held))) : now;
  const int64_t wanted = int64_t{more.nodes} - now + job.spec.spares;
  more.held.resize(static_cast<size_t>(std::min(std::ssize(more.held), wanted)));
  reserve(request, more.held);
  return more;
}

}  // namespace muster::coordinator
