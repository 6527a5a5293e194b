// Workers that are kept free for a job, and jobs that run on fewer nodes than they asked for.
//
// One order decides who gets a worker: the queue's (priority, then age), in which jobs that run stand, too. A job that stands ahead of
// the one for which a worker is only held takes it; one that stands behind waits. So a spare is worth having on a busy fleet, and
// holds up nothing that is more urgent. Held workers are found anew in each pass, the same ones wherever they are still there.
#include <algorithm>
#include <iterator>
#include <set>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include "common/absl_view.h"
#include "common/doubled.h"
#include "common/exit_code.h"
#include "coordinator/core/core.h"
#include "coordinator/core/placement/placement.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"

namespace muster::coordinator {
namespace {

bool is_excluded_by_hand(const NodeBook& nodes, const WorkerName& name) {
  const NodeRecord* record = nodes.find(name);
  return record != nullptr && record->excluded && record->suspicion == Suspicion::kPerson;
}

// "node3 in place of node2"; empty: every node has the ranks that it had.
std::string replaced_text(const std::vector<WorkerName>& before,
                          const std::vector<WorkerName>& now) {
  constexpr size_t kNamedMax = 3;  // a reason is one line
  std::vector<std::string> changes;
  for (size_t i = 0; i < std::min(before.size(), now.size()); ++i) {
    if (before[i] != now[i])
      changes.push_back(absl::StrCat(now[i].value(), " in place of ", before[i].value()));
  }
  const size_t more = changes.size() - std::min(changes.size(), kNamedMax);
  changes.resize(changes.size() - more);
  return absl::StrCat(absl::StrJoin(changes, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : std::string());
}

}  // namespace

bool Core::wants_workers_held(const Job& job) const {
  if (!is_live(job.state)) return false;
  return !job.held.empty() ||
         (!job.cancel_requested && (job.spec.spares > 0 || nodes_now(job) < job.spec.nodes));
}

bool Core::anybody_wants_workers() const {
  return queue_.size() > 0 || std::ranges::any_of(launches_, [this](const auto& launch) {
           return wants_workers_held(jobs_.at(launch.first));
         });
}

// Who waits, and who runs and may have workers held, in the queue's order.
std::vector<JobQueue::Entry> Core::in_turn() const {
  std::vector<JobQueue::Entry> turns = queue_.in_order();
  for (const auto& [id, launch] : launches_) {
    const Job& job = jobs_.at(id);
    if (wants_workers_held(job)) turns.push_back({job.spec.priority, id, {}, {}, {}});
  }
  std::ranges::sort(turns, JobQueue::goes_first);
  return turns;
}

// Whether it may be back within seconds: it is not there, or is being checked. Who is connected and gets no ranks (it leaves, or
// has a process that cannot be killed) is not.
bool Core::is_away(const WorkerName& name) const {
  const auto worker = workers_.find(name);
  if (worker != workers_.end() && !worker->second.stuck.empty()) return false;
  return worker == workers_.end() || !worker->second.connected || worker->second.given_up ||
         worker->second.check.id != 0;
}

bool Core::waits_for_all(const Job& job, const JobQueue::Entry& entry) const {
  return now_ < entry.whole_until &&
         std::ranges::any_of(job.previous_nodes,
                             [this](const WorkerName& name) { return is_away(name); });
}

// Of those that it had, one that may be back within minutes; empty: none, or it has been waited for long enough, or most of them are away, and who is
// behind loses more than the job has left. A node that a person has excluded is not waited for.
WorkerName Core::node_to_wait_for(const Job& job, const JobQueue::Entry& entry) const {
  if (now_ >= entry.keep_until) return WorkerName();
  std::vector<WorkerName> away;
  std::ranges::copy_if(job.previous_nodes, std::back_inserter(away), [this](const auto& name) {
    return !is_excluded_by_hand(nodes_, name) && is_away(name);
  });
  const bool most = 2 * away.size() > job.previous_nodes.size();
  return away.empty() || most ? WorkerName() : away.front();
}

int32_t Core::fewest_nodes(const Job& job) const {
  return job.attempt == Attempt(0) ? job.spec.nodes : smallest_size(job.spec);
}

// Those that it could run on, now or when others have ended.
int32_t Core::nodes_for(const Job& job) const {
  const Wish wish = wish_of(job);
  return static_cast<int32_t>(std::ranges::count_if(workers_, [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.connected && !worker.given_up && takes_ranks(worker) &&
           !is_excluded_by_hand(nodes_, entry.first) && wish.would_have_room(host_of(worker, {}));
  }));
}

// The largest size that there is room for; where there is none, the one that is waited for.
int32_t Core::size_to_start(const Job& job, const std::vector<Host>& hosts) const {
  const int32_t room = nodes_free(wish_of(job), hosts);
  return std::max(fewest_nodes(job), largest_size(job.spec, room));
}

// At full size first, on nodes that are left out rather than not at all: a node that has passed its check is a smaller loss than fewer nodes.
// `remark`: about those.
Placement Core::place_among(const Job& job, bool whole, const std::vector<Host>& hosts,
                            const std::vector<Host>& left_out, std::string& remark) {
  const auto at_size = [&](int32_t nodes) {
    Placement placement = place(wish_of(job), nodes, hosts);
    if (placement.fit == Fit::kNever && !left_out.empty())
      placement = place_as_last_resort(job, nodes, hosts, left_out, remark);
    return placement;
  };
  Placement placement = at_size(job.spec.nodes);
  if (placement.fit == Fit::kNow || whole) return placement;
  remark.clear();
  return at_size(size_to_start(job, hosts));
}

// Without the nodes to avoid, which would end the attempt as they did before: on nodes that are left out, or fewer, rather than with them.
Placement Core::find_place(const Job& job, bool whole, const std::vector<Host>& hosts,
                           const std::vector<Host>& left_out, std::string& remark) {
  const std::set<WorkerName> avoided = nodes_to_avoid(job, unix_ns_);
  if (avoided.empty()) return place_among(job, whole, hosts, left_out, remark);
  const auto without = [&](std::vector<Host> some) {
    std::erase_if(some, [&](const Host& host) { return avoided.contains(host.name); });
    return some;
  };
  const std::vector<Host> others = without(left_out);
  Placement placement = place_among(job, whole, without(hosts), others, remark);
  // It will be smaller, or one of the others answers within seconds.
  const bool waits = (whole && fewest_nodes(job) < job.spec.nodes) ||
                     std::ranges::any_of(others, [this](const Host& host) {
                       return workers_.at(host.name).check.id != 0;
                     });
  if (placement.fit == Fit::kNow || waits) return placement;
  remark.clear();
  return place_among(job, whole, hosts, left_out, remark);
}

Wish Core::wish_of(const Job& job) const {
  return {job.spec.ranks_per_node,
          job.placement.empty() ? job.previous_nodes : nodes_of(job.placement), job.held,
          nodes_to_avoid(job, unix_ns_), job.spec.gpus_per_rank};
}

void Core::keep_free(Job& job, std::vector<WorkerName> names, std::vector<Host>& hosts) {
  if (!names.empty()) {
    const std::set<WorkerName> kept(names.begin(), names.end());
    const Wish wish = wish_of(job);
    for (Host& host : hosts) {
      if (!kept.contains(host.name)) continue;
      host.slots_free -= wish.ranks_per_node;
      host.gpus_free -= wish.gpus_of(host);
    }
  }
  if (job.held == names) return;
  job.held = std::move(names);
  changed_.insert(job.id);
}

// Between two attempts that follow each other at once or soon.
void Core::keep_own_nodes(Job& job, std::vector<Host>& hosts) {
  std::set<WorkerName> own(job.previous_nodes.begin(), job.previous_nodes.end());
  own.insert(job.held.begin(), job.held.end());
  std::vector<WorkerName> free;
  const Wish wish = wish_of(job);
  for (const Host& host : hosts)
    if (own.contains(host.name) && wish.has_room(host)) free.push_back(host.name);
  keep_free(job, std::move(free), hosts);
}

// An attempt that ends to go on on more nodes is placed anew: on those that it has, too.
bool Core::keeps_its_nodes(const Job& job) const {
  return std::ranges::all_of(nodes_of(job.placement), [this](const WorkerName& name) {
    const auto worker = workers_.find(name);
    return worker != workers_.end() && takes_ranks(worker->second) &&
           worker->second.stuck.empty() && (nodes_.is_sound(name) || may_be_taken(name));
  });
}

// Of a job that has an attempt: what it may grow onto, then its spares. Where a job ahead of it waits, it would have to wait behind that one: then
// it grows onto nothing.
void Core::keep_more_nodes(Job& job, bool somebody_waits, std::vector<Host>& hosts) {
  if (!wants_workers_held(job)) return;
  if (job.cancel_requested) return keep_free(job, {}, hosts);
  const int32_t now = nodes_now(job);
  const bool may_grow = now < job.spec.nodes && !somebody_waits && keeps_its_nodes(job);
  std::vector<WorkerName> more =
      choose_held(wish_of(job), (may_grow ? job.spec.nodes - now : 0) + job.spec.spares, hosts);
  const int32_t larger =
      may_grow ? std::max(now, largest_size(job.spec, now + std::ssize(more))) : now;
  const int64_t wanted = int64_t{larger} - now + job.spec.spares;
  more.resize(static_cast<size_t>(std::min(std::ssize(more), wanted)));
  keep_free(job, std::move(more), hosts);
  grow_when_due(job, larger);
}

void Core::grow_when_due(Job& job, int32_t larger) {
  Launch& launch = launches_.at(job.id);
  if (larger != launch.larger) launch.roomy_since.reset();
  launch.larger = larger;
  if (larger <= nodes_now(job)) return;
  if (!launch.roomy_since) launch.roomy_since = now_;
  constexpr int32_t kTimesMax = 64;  // half an hour
  const Duration stable =
      doubled(options_.grow_stable, job.resizes, kTimesMax * options_.grow_stable);
  const Instant due = std::max(*launch.roomy_since + stable, launch.started + options_.grow_after);
  if (job.state != JobState::kRunning || job.cancel_requested || due > now_) return;
  if (!job.exits.empty()) return;  // it is about to end
  ++job.resizes;
  const int32_t more = larger - nodes_now(job);
  Fault cause;
  cause.exit_code = to_int(ExitCode::kPreempted);
  cause.unix_ns = unix_ns_;
  for (const RankState& rank : job.ranks) cause.last_step = std::max(cause.last_step, rank.step);
  cause.message =
      absl::StrCat(more, more == 1 ? " more node is" : " more nodes are", " free: it leaves its ",
                   nodes_now(job), " to go on on ", larger, " of ", job.spec.nodes);
  fault(job, std::move(cause), options_.grow_grace);
}

// Where, and why there, when it is not where it was or not all of it.
std::string Core::start_text(const Job& job) const {
  const std::vector<WorkerName> now = nodes_of(job.placement);
  const std::string replaced =
      now.size() >= job.previous_nodes.size() ? replaced_text(job.previous_nodes, now) : "";
  std::string text =
      absl::StrCat("attempt ", job.attempt.value(), ": starting ", job.placement.size(),
                   job.placement.size() == 1 ? " rank on " : " ranks on ", now.front().value(),
                   now.size() > 1 ? absl::StrCat(" … ", now.back().value()) : std::string());
  if (!replaced.empty()) absl::StrAppend(&text, ", ", replaced);
  if (nodes_now(job) == job.spec.nodes) return text;
  std::vector<std::string> avoided;
  for (const WorkerName& name : nodes_to_avoid(job, unix_ns_))
    if (workers_.contains(name)) avoided.push_back(name.value());
  absl::StrAppend(&text, ", ", size_text(job), ": no more are free now",
                  avoided.empty() ? "" : " but what it avoids: " + absl::StrJoin(avoided, ", "));
  return text;
}

}  // namespace muster::coordinator
