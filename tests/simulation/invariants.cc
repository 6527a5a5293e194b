#include "tests/simulation/invariants.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

using namespace coordinator;  // NOLINT: this file is about its types

namespace {

// Accounts change with time alone, so they are checked now and then, too.
constexpr uint64_t kCommitsPerAccount = 16;

// Returns the job whose record or placement the action is about; 0: none.
JobId job_of(const Action& action) {
  if (const auto* stored = std::get_if<PersistJob>(&action)) return stored->job;
  if (const auto* exit = std::get_if<PersistExit>(&action)) return exit->job;
  if (const auto* changed = std::get_if<JobChanged>(&action)) return changed->job;
  if (const auto* forgotten = std::get_if<ForgetJob>(&action)) return forgotten->job;
  return JobId(0);
}

}  // namespace

void Invariants::after_call(const Event* event, const ActionList& actions) {
  const bool is_routine = event == nullptr || std::holds_alternative<HeartbeatReceived>(*event) ||
                          std::holds_alternative<Tick>(*event);
  if (is_routine && actions.empty()) return;
  no_slot_is_overbooked();
  if (event != nullptr) stale_events_change_nothing(*event);
  const auto& jobs = world_.coordinator.core().jobs();
  for (const auto& [id, job] : jobs) {
    const auto before = before_.find(id);
    check_job(before == before_.end() ? nullptr : &before->second, job);
  }
  for (const Action& action : actions) {
    const JobId id = job_of(action);
    if (id == JobId(0)) continue;
    const auto job = jobs.find(id);
    if (job == jobs.end()) {
      before_.erase(id);
    } else {
      before_.insert_or_assign(id, job->second);
    }
  }
}

void Invariants::check_job(const Job* was, const Job& job) {
  if (was != nullptr && was->state == job.state && was->attempt == job.attempt &&
      !is_live(job.state))
    return;
  ranks_are_a_bijection(job);
  if (job.state == JobState::kStarting && (was == nullptr || was->attempt != job.attempt))
    no_rank_is_placed_on_an_excluded_node(job);
  reserved_workers_are_needed(job);
  if (was != nullptr) present_nodes_keep_their_ranks(*was, job);
  no_rank_stays_on_a_leaving_worker(job);
  outcomes_are_final_and_correct(was, job);
  if (was != nullptr) attempts_are_consecutive(*was, job);
  if (was != nullptr) states_follow_the_ladder(*was, job);
}

void Invariants::after_commit(bool is_empty) {
  if (++commits_ % kCommitsPerAccount == 0) accounts_add_up();
  if (is_empty) return;
  reload_equals_memory();
  job_numbers_are_unique();
  incidents_are_correct();
  accounts_add_up();
  const bool forgets = world_.coordinator.disk().size() >= world_.core_options.finished_jobs_max;
  for (const JobId id : confirmed_) {
    world_.require(forgets || world_.coordinator.disk().contains(id),
                   absl::StrCat("job ", id.value(), " was confirmed and is gone"));
  }
}

void Invariants::note_confirmed(JobId job, const std::string& request_id) {
  confirmed_.insert(job);
  const JobId first = confirmed_requests_.try_emplace(request_id, job).first->second;
  // A job that has ended and was forgotten may be submitted again.
  world_.require(first == job || !world_.coordinator.disk().contains(first),
                 absl::StrCat(request_id, " was confirmed as job ", first.value(),
                              " and then as job ", job.value()));
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
  const auto& nodes = world_.coordinator.core().nodes();
  world_.require(nodes.size() == world_.coordinator.disk_nodes().size(),
                 "disk and memory have different nodes");
  for (const auto& [name, node] : nodes) {
    NodeRecord known = node;
    known.until.reset();
    const auto stored = world_.coordinator.disk_nodes().find(name);
    world_.require(stored != world_.coordinator.disk_nodes().end() && stored->second == known,
                   absl::StrCat("the disk's record of ", name.value(), " differs from memory"));
  }
}

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
    world_.require(worker == core.workers().end() || worker->second.stuck.empty(),
                   absl::StrCat("job ", job.id.value(), " is placed on ", rank.worker.value(),
                                ", where a process cannot be killed"));
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

// Judges stored numbers: a number whose job was lost with the coordinator may be assigned again.
void Invariants::job_numbers_are_unique() {
  std::set<JobId> stored;
  for (const auto& [id, job] : world_.coordinator.disk()) {
    stored.insert(id);
    if (stored_.contains(id)) continue;
    world_.require(id > newest_, absl::StrCat("the number ", id.value(), " was given twice"));
    newest_ = std::max(newest_, id);
  }
  stored_ = std::move(stored);
}

void Invariants::no_slot_is_overbooked() {
  const Core& core = world_.coordinator.core();
  const auto used = core.use_by_worker();
  for (const auto& [name, worker] : core.workers()) {
    // A worker that returned with ranks of lost attempts may exceed its slots until they are
    // stopped.
    if (!worker.connected || !worker.orphans.empty()) continue;
    const auto it = used.find(name);
    world_.require(it == used.end() || (it->second.slots <= worker.slots &&
                                        it->second.gpus <= std::ssize(worker.gpus)),
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
    world_.require(!world_.worker(host).shares_a_gpu(),
                   absl::StrCat("node", host, " gives one GPU to two processes"));
    world_.require(count <= world_.worker(host).slots(),
                   absl::StrCat("node", host, " runs ", count, " processes"));
  }
}

void Invariants::ranks_are_a_bijection(const Job& job) {
  if (!is_live(job.state)) return;
  const int32_t size = nodes_now(job);
  world_.require(std::ssize(job.placement) == int64_t{size} * job.spec.ranks_per_node,
                 "a live job lacks ranks");
  world_.require(
      size >= smallest_size(job.spec) && largest_size(job.spec, size) == size,
      absl::StrCat("job ", job.id.value(), " has ", size, " nodes, which is no size of it"));
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
  world_.require(std::ssize(nodes) == size, "the job has another number of nodes");
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
                   absl::StrCat("job ", job.id.value(), " has ", job.previous_nodes[i].value(),
                                " with other ranks than before"));
    attempts_on_spares_ +=
        now[i] != job.previous_nodes[i] && std::ranges::count(before.held, now[i]) > 0;
  }
}

// Requires that workers reserved for a job are not among its nodes, and that no job reserves more
// workers than it requested.
void Invariants::reserved_workers_are_needed(const Job& job) {
  const std::vector<WorkerName> own = nodes_of(job.placement);
  const std::set<WorkerName> held(job.held.begin(), job.held.end());
  world_.require(held.size() == job.held.size(), "a worker is held twice for one job");
  world_.require(std::ssize(held) <= job.spec.nodes - nodes_now(job) + job.spec.spares,
                 absl::StrCat("job ", job.id.value(), " holds more workers than it may"));
  world_.require(held.empty() || !is_terminal(job.state), "a job that has ended holds workers");
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
    world_.require(!leaves || job.ranks[i].life == RankState::Life::kExited,
                   absl::StrCat("job ", job.id.value(), " continues with rank ", i, " on ",
                                job.placement[i].worker.value(), ", which leaves"));
  }
}

void Invariants::attempts_are_consecutive(const Job& before, const Job& job) {
  for (const auto& [cause, used] : job.restarts_used) {
    world_.require(used.count <= restarts_allowed(job.spec, cause),
                   absl::StrCat("more restarts than allowed after ", av(rule_of(cause).name)));
  }
  const bool by_leaving = !job.faults.empty() && is_preempted(job.faults.back());
  world_.require(!by_leaving || job.restarts == before.restarts,
                 absl::StrCat("job ", job.id.value(), " paid for being preempted"));
  // A rank is preempted only by its worker, which announces its shutdown before, unless the worker
  // has waited for the coordinator in vain.
  const bool by_rank = by_leaving && job.faults.back().rank.value() >= 0 && job.spec.nodes > 1 &&
                       job.faults.size() > before.faults.size();
  world_.require(!by_rank || world_.stopped_by_workers.contains(
                                 {world_.coordinator.store(), {job.id, before.attempt}}),
                 absl::StrCat("job ", job.id.value(), ": ",
                              job.faults.empty() ? "" : job.faults.back().message,
                              ", before any message with the reason"));
  if (job.attempt != before.attempt) {
    world_.require(job.attempt.value() == before.attempt.value() + 1,
                   "attempts are not counted one by one");
    if (!before.faults.empty()) {
      const Fault& fault = before.faults.back();
      // Bad input of a job that has trained, perhaps with fewer ranks, is a fault of a node's files.
      const bool is_bad_input =
          fault.exit_code == to_int(ExitCode::kBadInput) && !has_trained(fault);
      world_.require(
          fault.signal != 0 || (!is_bad_input && fault.exit_code != to_int(ExitCode::kNotFinite)),
          "what a retry cannot help was retried");
      const bool is_missing = fault.of_program && fault.signal == 0 &&
                              (fault.exit_code == to_int(ExitCode::kNotExecutable) ||
                               fault.exit_code == to_int(ExitCode::kProgramNotFound));
      world_.require(!is_missing || fault.node_unfit, "a missing program was retried");
    }
  }
  if (is_live(before.state) && (!is_live(job.state) || job.attempt != before.attempt))
    old_ranks_are_gone(before);
}

// Requires that an attempt ends only when each of its processes has ended, or the process's node
// was silent for a complete lease.
void Invariants::old_ranks_are_gone(const Job& before) {
  for (const auto& [key, process] : world_.trainers.processes()) {
    if (key.second.job != before.id || key.second.attempt != before.attempt || !process.running ||
        process.store != world_.coordinator.store())
      continue;
    const FakeWorker& worker = world_.worker(key.first);
    const Instant last_message =
        world_.coordinator.last_message_of(worker.name(), worker.incarnation());
    // A silent worker whose ranks are missed by their peers is given up before its lease expires.
    const bool missed = world_.trainers.is_troubled({{process.store, before.id}, before.attempt}) ||
                        before.state == JobState::kDumping;
    if (missed) continue;
    // The same holds once the attempt's ranks on other workers are gone, because the silent
    // worker's ranks then complete no step.
    const bool alone = std::ranges::all_of(
        before.placement, [&](const RankPlacement& rank) { return rank.worker == worker.name(); });
    const Duration patience = alone || before.cancel_requested
                                  ? world_.core_options.worker_lease
                                  : world_.core_options.unreachable_confirm;
    world_.require(last_message + patience <= world_.scheduler.now(),
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

// Requires that incident numbers are assigned once and in order, and that only ranks that hang are
// reported as hanging.
void Invariants::incidents_are_correct() {
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

// Requires that every moment since a job's first start is in one class, also across coordinator
// restarts, and that a recovery in progress has a record.
void Invariants::accounts_add_up() {
  const Core& core = world_.coordinator.core();
  const Instant now = world_.scheduler.now();
  for (const auto& [id, job] : core.jobs()) {
    if (job.attempt == Attempt(0)) continue;
    const Instant started = started_.try_emplace(id, now).first->second;
    if (is_terminal(job.state)) {
      world_.require(job.recovering == IncidentId(0), "a job that has ended recovers");
      continue;
    }
    const Duration wall = table_of(core.account_of(job, now)).wall();
    world_.require(
        wall == now - started,
        absl::StrCat("job ", id.value(), " has ", to_seconds(wall), " s in its account, and began ",
                     to_seconds(now - started), " s ago"));
    const auto& incidents = world_.coordinator.disk_incidents();
    const auto record = incidents.find(job.recovering);
    world_.require(job.recovering == IncidentId(0) ||
                       (record != incidents.end() && is_unfinished(record->second)),
                   absl::StrCat("job ", id.value(), " recovers without a record"));
  }
}

void Invariants::outcomes_are_final_and_correct(const Job* before, const Job& job) {
  if (before != nullptr && is_terminal(before->state)) {
    world_.require(durable(*before) == durable(job),
                   absl::StrCat("job ", job.id.value(), " changed after its end"));
    return;
  }
  if (job.state == JobState::kSucceeded) {
    world_.require(
        std::ssize(world_.trainers.succeeded(
            {{world_.coordinator.store(), job.id}, job.attempt})) == std::ssize(job.placement),
        absl::StrCat("job ", job.id.value(), " succeeded without all its ranks"));
  }
  if (job.state == JobState::kCancelled)
    world_.require(job.cancel_requested, "no user cancelled it");
  if (job.state == JobState::kFailed) world_.require(job.exit_code != 0, "it failed with code 0");
}

void Invariants::stale_events_change_nothing(const Event& event) {
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
