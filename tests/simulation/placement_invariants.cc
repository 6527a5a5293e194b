// Invariants of placement: slots, nodes and reservations.
#include <algorithm>
#include <string_view>

#include <absl/strings/str_cat.h>

#include "common/text/absl_view.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "tests/simulation/invariants.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

using namespace coordinator;  // NOLINT: this file is about its types

// Requires that no rank is placed on an excluded node. Exception: a job that has no other
// placement, or only nodes that it avoids, if no person has excluded the node and the node has
// passed the required check.
void Invariants::no_rank_is_placed_on_an_excluded_node(const Job& job) {
  const Core& core = world_.coordinator.core();
  int32_t sound = 0;
  const std::set<WorkerName> avoided =
      job.faults.empty() ? std::set<WorkerName>() : nodes_to_avoid(job, job.faults.back().unix_ns);
  for (const auto& [name, worker] : core.workers()) {
    if (avoided.contains(name)) continue;
    const auto node = core.nodes().find(name);
    const bool is_sound =
        node == core.nodes().end() || (!node->second.excluded && !node->second.check_due);
    sound += is_sound && worker.stuck.empty() && worker.connected && !worker.leaving &&
             !worker.given_up && worker.slots >= job.spec.ranks_per_node;
  }
  for (const RankPlacement& rank : job.placement) {
    const auto worker = core.workers().find(rank.worker);
    world_.require(worker == core.workers().end() || worker->second.stuck.empty(), "job ",
                   job.id.value(), " is placed on ", rank.worker.value(),
                   ", where a process cannot be killed");
  }
  last_resorts_ += job.reason.find("only excluded nodes have room:") != std::string::npos;
  for (const RankPlacement& rank : job.placement) {
    const auto found = core.nodes().find(rank.worker);
    if (found == core.nodes().end() || (!found->second.excluded && !found->second.check_due))
      continue;
    const NodeRecord& node = found->second;
    const SuspicionRule& rule = rule_of(node.suspicion);
    const std::string what =
        absl::StrCat("job ", job.id.value(), " is placed on ", rank.worker.value(), ", which ");
    world_.require(node.excluded, what + "has yet to be checked");
    world_.require(rule.is_soft, what + "a person has excluded");
    world_.require(!rule.requires_check || (node.checked_unix_ns > 0 && node.check.passed),
                   what + "has passed no check");
    world_.require(sound < job.spec.nodes, what + "is left out while others would do");
    world_.require(job.reason.find("only excluded nodes have room:") != std::string::npos,
                   what + "is left out, and the reason does not mention it");
  }
}

void Invariants::no_slot_is_overbooked() {
  const Core& core = world_.coordinator.core();
  const auto used = core.use_by_worker();
  for (const auto& [name, worker] : core.workers()) {
    const auto found = used.find(name);
    const NodeUse listed = found == used.end() ? NodeUse{} : found->second;
    const NodeUse single = core.use_of(name);
    world_.require(single.slots == listed.slots && single.gpus == listed.gpus, "worker ",
                   name.value(), " has another use alone than in the list of all");
    // A worker that returned with ranks of lost attempts may exceed its slots until they are
    // stopped.
    if (!worker.connected || !worker.orphans.empty()) continue;
    world_.require(listed.slots <= worker.slots && listed.gpus <= std::ssize(worker.gpus),
                   "worker ", name.value(), " is overbooked");
  }
}

void Invariants::processes_fit() {
  std::map<int, int32_t> processes;
  std::map<std::pair<int, JobKey>, Attempt> attempts;
  for (const auto& [key, process] : world_.trainers.processes()) {
    ++processes[key.first];
    const JobKey job{process.store, key.second.job};
    const auto [it, added] = attempts.try_emplace({key.first, job}, key.second.attempt);
    world_.require(added || it->second == key.second.attempt, "two attempts of job ",
                   key.second.job.value(), " run on one node");
  }
  for (const auto& [host, count] : processes) {
    world_.require(!world_.worker(host).shares_a_gpu(), "node", host,
                   " gives one GPU to two processes");
    world_.require(count <= world_.worker(host).slots(), "node", host, " runs ", count,
                   " processes");
  }
}

// Placement treats an excluded node as one that awaits a check, so each has to await one.
void Invariants::excluded_nodes_await_a_check() {
  for (const auto& [name, node] : world_.coordinator.core().nodes())
    world_.require(!node.excluded || node.check_due, name.value(),
                   " is excluded and awaits no check");
}

// Requires that at the time of a drain no rank is on the node, unless its attempt ends.
void Invariants::drained_nodes_are_left(const Event* event) {
  const Core& core = world_.coordinator.core();
  std::erase_if(drains_, [&](const auto& drain) { return !core.nodes().contains(drain.first); });
  for (const auto& [name, node] : core.nodes()) {
    if (node.drain_unix_ns != 0)
      drains_[name] = node.drain_unix_ns;
    else if (!node.excluded || node.suspicion != Suspicion::kPerson)
      drains_.erase(name);  // another exclusion may follow at once
  }
  // The coordinator orders jobs to leave at its ticks, which may be late.
  constexpr int64_t kTickNs = 1'000'000'000;
  if (event == nullptr || !std::holds_alternative<Tick>(*event)) return;
  for (const auto& [name, at] : drains_) {
    if (world_.scheduler.unix_ns() < at + kTickNs || !core.workers().contains(name)) continue;
    for (const auto& [id, job] : core.jobs()) {
      if (!is_live(job.state) || job.state == JobState::kRestarting || job.cancel_requested)
        continue;
      for (size_t i = 0; i < job.placement.size(); ++i)
        world_.require(
            job.placement[i].worker != name || job.ranks[i].life == RankState::Life::kExited,
            "rank ", i, " of job ", id.value(), " is on ", name.value(), ", which was drained");
    }
  }
}

void Invariants::drains_order_once(const Job* was, const Job& job) {
  if (was == nullptr || job.faults.size() <= was->faults.size() || !job.faults.back().is_planned)
    return;
  const WorkerName& node = job.faults.back().worker;
  const auto drain = drains_.find(node);
  if (!world_.coordinator.core().nodes().contains(node)) return;
  world_.require(drain != drains_.end(), "job ", job.id.value(), " leaves ", node.value(),
                 ", which is not drained");
  if (drain == drains_.end()) return;
  world_.require(ordered_.emplace(job.id, node, drain->second).second, "job ", job.id.value(),
                 " was ordered to leave ", node.value(), " twice for one drain");
}

void Invariants::ranks_are_a_bijection(const Job& job) {
  if (!is_live(job.state)) return;
  const int32_t size = nodes_now(job);
  world_.require(std::ssize(job.placement) == int64_t{size} * job.spec.ranks_per_node,
                 "a live job lacks ranks");
  world_.require(size >= smallest_size(job.spec) && largest_size(job.spec, size) == size, "job ",
                 job.id.value(), " has ", size, " nodes, which is no size of it");
  std::set<std::string_view> nodes;
  for (size_t i = 0; i < job.placement.size(); ++i) {
    const RankPlacement& rank = job.placement[i];
    const auto local_rank = static_cast<int32_t>(i) % job.spec.ranks_per_node;
    const bool is_contiguous = rank.rank.value() == static_cast<int32_t>(i) &&
                               rank.local_rank == local_rank &&
                               (local_rank == 0 || rank.worker == job.placement[i - 1].worker);
    if (!is_contiguous) return world_.fail("ranks are not host-contiguous");
    if (local_rank == 0 && !nodes.insert(rank.worker.value()).second)
      return world_.fail("two ranks have one place");
  }
}

// Requires that nodes that are still present have the same ranks as before, and that the first
// start has the full size.
void Invariants::present_nodes_keep_their_ranks(const Job& before, const Job& job) {
  if (job.resizes > before.resizes) grown_.emplace(job.id, before.attempt);
  if (job.attempt == before.attempt || job.state != JobState::kStarting) return;
  world_.require(job.attempt > Attempt(1) || nodes_now(job) == job.spec.nodes,
                 "a job is smaller from the start");
  smaller_attempts_ += nodes_now(job) < job.spec.nodes;
  const std::vector<WorkerName> now = nodes_of(job.placement);
  const std::set<WorkerName> seated(now.begin(), now.end());
  for (size_t i = 0; i < std::min(now.size(), job.previous_nodes.size()); ++i) {
    world_.require(now[i] == job.previous_nodes[i] || !seated.contains(job.previous_nodes[i]) ||
                       job.previous_nodes[i] == WorkerName(),
                   "job ", job.id.value(), " has ", job.previous_nodes[i].value(),
                   " with other ranks than before");
    attempts_on_spares_ +=
        now[i] != job.previous_nodes[i] && std::ranges::count(before.held, now[i]) > 0;
  }
}

// Requires that workers reserved for a job are not among its nodes, that no job reserves more
// workers than it requested, and that no worker is newly reserved while it is leaving or away.
void Invariants::reserved_workers_are_needed(const Job* was, const Job& job) {
  if (job.held.empty()) return;
  const auto& workers = world_.coordinator.core().workers();
  for (const WorkerName& name : job.held) {
    if (was != nullptr && std::ranges::count(was->held, name) > 0) continue;
    const auto worker = workers.find(name);
    const bool is_available =
        worker != workers.end() && worker->second.connected && !worker->second.leaving;
    world_.require(is_available, "job ", job.id.value(), " reserves ", name.value(),
                   ", which leaves or is not connected");
  }
  const std::vector<WorkerName> own = nodes_of(job.placement);
  const std::set<WorkerName> held(job.held.begin(), job.held.end());
  world_.require(held.size() == job.held.size(), "a worker is held twice for one job");
  world_.require(std::ssize(held) <= job.spec.nodes - nodes_now(job) + job.spec.spares, "job ",
                 job.id.value(), " holds more workers than it may");
  world_.require(!is_terminal(job.state), "a job that has ended holds workers");
  for (const WorkerName& name : own)
    world_.require(!held.contains(name), "a node of the job is its own spare");
}

// Requires that no attempt continues with a rank on a draining worker, which would kill the rank
// and cause a fault, and that no new rank is placed there.
void Invariants::no_rank_stays_on_a_leaving_worker(const Job& job) {
  const bool continues = job.state == JobState::kStarting || job.state == JobState::kRunning;
  if (!continues || job.cancel_requested) return;
  for (size_t i = 0; i < job.placement.size(); ++i) {
    const auto& workers = world_.coordinator.core().workers();
    const auto worker = workers.find(job.placement[i].worker);
    const bool leaves = worker != workers.end() && worker->second.leaving &&
                        worker->second.incarnation == job.placement[i].incarnation;
    world_.require(!leaves || job.ranks[i].life == RankState::Life::kExited, "job ", job.id.value(),
                   " continues with rank ", i, " on ", job.placement[i].worker.value(),
                   ", which leaves");
  }
}

}  // namespace muster::simulation
