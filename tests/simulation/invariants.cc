#include "tests/simulation/invariants.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/exit_code.h"
#include "coordinator/core/restart_policy.h"
#include "tests/simulation/world.h"

namespace muster::simulation {
namespace {

using namespace coordinator;  // NOLINT: this file is about its types

Job durable(Job job) {
  job.ranks.clear();
  return job;
}

}  // namespace

void Invariants::before_step(const Core& core, const Event&) { before_ = core.jobs(); }

void Invariants::after_commit(const Event& event) {
  reload_equals_memory();
  numbers_are_given_once();
  no_slot_is_overbooked();
  stale_news_are_inert(event);
  incidents_are_true();
  for (const auto& [id, job] : world_.coordinator.core().jobs()) {
    const auto before = before_.find(id);
    const Job* was = before == before_.end() ? nullptr : &before->second;
    if (was != nullptr && was->state == job.state && was->attempt == job.attempt &&
        !is_live(job.state))
      continue;
    ranks_are_a_bijection(job);
    nobody_stays_where_a_worker_leaves(job);
    ends_are_final_and_true(was, job);
    if (was != nullptr) attempts_follow_each_other(*was, job);
    if (was != nullptr) states_follow_the_ladder(*was, job);
  }
  const bool forgets = world_.coordinator.disk().size() >= world_.core_options.finished_jobs_max;
  for (const JobId id : promised_) {
    world_.require(forgets || world_.coordinator.disk().contains(id),
                   absl::StrCat("job ", id.value(), " was promised and is gone"));
  }
}

void Invariants::reload_equals_memory() {
  const auto& disk = world_.coordinator.disk();
  const auto& memory = world_.coordinator.core().jobs();
  world_.require(disk.size() == memory.size(), "disk and memory have different jobs");
  for (const auto& [id, job] : memory) {
    const auto stored = disk.find(id);
    world_.require(stored != disk.end() && stored->second == durable(job),
                   absl::StrCat("the disk's record of job ", id.value(), " differs from memory"));
  }
  world_.require(world_.coordinator.disk_request_ids() == world_.coordinator.core().request_ids(),
                 "the disk's request ids differ from memory");
}

void Invariants::numbers_are_given_once() {
  for (const auto& [id, job] : world_.coordinator.core().jobs()) {
    if (before_.contains(id)) continue;
    world_.require(id > newest_, absl::StrCat("the number ", id.value(), " was given twice"));
    newest_ = std::max(newest_, id);
  }
}

void Invariants::no_slot_is_overbooked() {
  const Core& core = world_.coordinator.core();
  const auto used = core.slots_used_by_worker();
  for (const auto& [name, worker] : core.workers()) {
    // A worker that came back with ranks of lost attempts may hold more than it is given until they are stopped.
    if (!worker.connected || !worker.strays.empty()) continue;
    const auto it = used.find(name);
    world_.require(it == used.end() || it->second <= worker.slots,
                   absl::StrCat("worker ", name.value(), " is overbooked"));
  }
  std::map<int, int32_t> processes;
  std::map<std::pair<int, JobKey>, Attempt> attempts;
  for (const auto& [key, process] : world_.trainers.processes()) {
    ++processes[key.first];
    const JobKey job{process.store, key.second.job};
    const auto [it, added] = attempts.try_emplace({key.first, job}, key.second.attempt);
    world_.require(
        added || it->second == key.second.attempt,
        absl::StrCat("two attempts of job ", key.second.job.value(), " run on one node"));
  }
  for (const auto& [host, count] : processes) {
    world_.require(count <= world_.worker(host).slots(),
                   absl::StrCat("node", host, " runs ", count, " processes"));
  }
}

void Invariants::ranks_are_a_bijection(const Job& job) {
  if (!is_live(job.state)) return;
  world_.require(std::ssize(job.placement) == job.spec.world_size(), "a live job lacks ranks");
  std::set<std::pair<WorkerName, int32_t>> places;
  std::set<WorkerName> nodes;
  for (size_t i = 0; i < job.placement.size(); ++i) {
    const RankPlacement& rank = job.placement[i];
    const auto expected_local = static_cast<int32_t>(i) % job.spec.ranks_per_node;
    world_.require(
        rank.rank.value() == static_cast<int32_t>(i) && rank.local_rank == expected_local,
        "ranks are not host-contiguous");
    world_.require(places.emplace(rank.worker, rank.local_rank).second, "two ranks have one place");
    nodes.insert(rank.worker);
  }
  world_.require(std::ssize(nodes) == job.spec.nodes, "the job has another number of nodes");
}

// Its ranks would be killed there, and the attempt would count as a fault. Nothing new is placed there either.
void Invariants::nobody_stays_where_a_worker_leaves(const Job& job) {
  const bool goes_on = job.state == JobState::kStarting || job.state == JobState::kRunning;
  if (!goes_on || job.cancel_requested) return;
  for (size_t i = 0; i < job.placement.size(); ++i) {
    const auto& workers = world_.coordinator.core().workers();
    const auto worker = workers.find(job.placement[i].worker);
    const bool leaves = worker != workers.end() && worker->second.leaving &&
                        worker->second.incarnation == job.placement[i].incarnation;
    world_.require(!leaves || job.ranks[i].life == RankState::Life::kExited,
                   absl::StrCat("job ", job.id.value(), " goes on with rank ", i, " on ",
                                job.placement[i].worker.value(), ", which leaves"));
  }
}

void Invariants::attempts_follow_each_other(const Job& before, const Job& job) {
  world_.require(job.restarts <= job.spec.restarts_max, "more restarts than allowed");
  const bool by_leaving = !job.faults.empty() && is_preempted(job.faults.back());
  world_.require(!by_leaving || job.restarts == before.restarts,
                 absl::StrCat("job ", job.id.value(), " paid for being preempted"));
  if (job.attempt != before.attempt) {
    world_.require(job.attempt.value() == before.attempt.value() + 1,
                   "attempts are not counted one by one");
    if (!before.faults.empty()) {
      const Fault& fault = before.faults.back();
      world_.require(fault.signal != 0 || (fault.exit_code != to_int(ExitCode::kBadInput) &&
                                           fault.exit_code != to_int(ExitCode::kNotFinite)),
                     "what a retry cannot help was retried");
    }
  }
  if (is_live(before.state) && (!is_live(job.state) || job.attempt != before.attempt))
    old_ranks_are_gone(before);
}

// An attempt is over only when each of its processes has ended, or its node was silent for a whole lease.
void Invariants::old_ranks_are_gone(const Job& before) {
  for (const auto& [key, process] : world_.trainers.processes()) {
    if (key.second.job != before.id || key.second.attempt != before.attempt || !process.running ||
        process.store != world_.coordinator.store())
      continue;
    const FakeWorker& worker = world_.worker(key.first);
    const Instant heard = world_.coordinator.last_heard(worker.name(), worker.incarnation());
    // A worker that is silent and whose ranks are missed by their peers is given up before its lease is over.
    const bool missed = world_.trainers.is_troubled({{process.store, before.id}, before.attempt}) ||
                        before.state == JobState::kDumping;
    if (missed) continue;
    const Duration patience = world_.core_options.worker_lease;
    world_.require(heard + patience <= world_.scheduler.now(),
                   absl::StrCat("attempt ", before.attempt.value(), " of job ", before.id.value(),
                                " was ended while rank ", key.second.rank.value(), " runs on node",
                                key.first));
  }
}

void Invariants::states_follow_the_ladder(const Job& before, const Job& job) {
  if (job.attempt != before.attempt || job.state == before.state) return;
  const auto is = [](JobState state, std::initializer_list<JobState> any) {
    return std::find(any.begin(), any.end(), state) != any.end();
  };
  if (job.state == JobState::kSuspect || job.state == JobState::kDumping) {
    world_.require(is_running(before.state) || before.state == JobState::kStarting,
                   absl::StrCat("job ", job.id.value(), " is suspected before it ran"));
    world_.require(!job.cancel_requested, "a cancelled job is suspected");
  }
  if (is_running(before.state)) {
    world_.require(!is(job.state, {JobState::kStarting}), "a job that ran is starting again");
  }
}

// Numbers are given once and in order; nobody is said to hang who does not.
void Invariants::incidents_are_true() {
  for (const auto& [id, incident] : world_.coordinator.disk_incidents()) {
    if (id > newest_incident_) {
      world_.require(id.value() == newest_incident_.value() + 1,
                     absl::StrCat("incident ", id.value(), " follows ", newest_incident_.value()));
      newest_incident_ = id;
    }
    if (incident.kind != IncidentKind::kHang || !judged_.insert(id).second) continue;
    const LaunchKey launch{{world_.coordinator.store(), incident.job}, incident.attempt};
    world_.require(world_.trainers.is_troubled(launch),
                   absl::StrCat("a false alarm: ", incident.sentence));
  }
}

void Invariants::ends_are_final_and_true(const Job* before, const Job& job) {
  if (before != nullptr && is_terminal(before->state)) {
    world_.require(durable(*before) == durable(job),
                   absl::StrCat("job ", job.id.value(), " changed after its end"));
    return;
  }
  if (job.state == JobState::kSucceeded) {
    world_.require(std::ssize(world_.trainers.succeeded({{world_.coordinator.store(), job.id},
                                                         job.attempt})) == job.spec.world_size(),
                   absl::StrCat("job ", job.id.value(), " succeeded without all its ranks"));
  }
  if (job.state == JobState::kCancelled)
    world_.require(job.cancel_requested, "nobody cancelled it");
  if (job.state == JobState::kFailed) world_.require(job.exit_code != 0, "it failed with code 0");
}

void Invariants::stale_news_are_inert(const Event& event) {
  const auto* exit = std::get_if<RankExited>(&event);
  if (exit == nullptr) return;
  const auto before = before_.find(exit->job);
  if (before == before_.end()) return;
  const Job& was = before->second;
  bool current = is_live(was.state) && was.attempt == exit->attempt;
  if (current) {
    const RankPlacement& placed = was.placement.at(static_cast<size_t>(exit->rank.value()));
    current = placed.worker == exit->worker && placed.incarnation == exit->incarnation;
  }
  if (current || was.state == JobState::kQueued) return;
  const auto& jobs = world_.coordinator.core().jobs();
  const auto now = jobs.find(exit->job);
  world_.require(now == jobs.end() || durable(was) == durable(now->second),
                 absl::StrCat("stale news changed job ", exit->job.value()));
}

}  // namespace muster::simulation
