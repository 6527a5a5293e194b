#include "tests/simulation/invariants.h"

#include <algorithm>
#include <string>

#include <absl/strings/str_cat.h>

#include "common/process/exit_code.h"
#include "common/text/absl_view.h"
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

bool Invariants::is_stale(const Event& event) const {
  if (std::holds_alternative<WorkerRegistered>(event)) return false;
  const auto [name, incarnation] = life_of(event);
  const auto& workers = world_.coordinator.core().workers();
  const auto worker = workers.find(name);
  return worker != workers.end() && worker->second.incarnation != incarnation;
}

void Invariants::before_call(const Event& event) {
  lease_ = world_.coordinator.core().pace().lease;
  sender_before_.reset();
  if (is_stale(event))
    sender_before_ = world_.coordinator.core().workers().at(life_of(event).first);
}

void Invariants::after_call(const Event* event, const ActionList& actions) {
  if (event != nullptr) {
    stale_events_change_nothing(*event, actions);
    last_event_at_ = world_.scheduler.now();
  }
  const bool is_routine = event == nullptr || std::holds_alternative<HeartbeatReceived>(*event) ||
                          std::holds_alternative<Tick>(*event);
  if (is_routine && actions.empty()) return;
  no_slot_is_overbooked();
  excluded_nodes_await_a_check();
  drained_nodes_are_left(event);
  time_limits_end_jobs(event);
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
  reserved_workers_are_needed(was, job);
  drains_order_once(was, job);
  revisions_change_between_attempts(was, job);
  planned_leaves_repeat_no_step(was, job);
  starts_are_permitted(was, job);
  if (was != nullptr && was->state == job.state && was->attempt == job.attempt &&
      !is_live(job.state))
    return;
  ranks_are_a_bijection(job);
  if (job.state == JobState::kStarting && (was == nullptr || was->attempt != job.attempt))
    no_rank_is_placed_on_an_excluded_node(job);
  if (was != nullptr) present_nodes_keep_their_ranks(*was, job);
  no_rank_stays_on_a_leaving_worker(job);
  outcomes_are_final_and_correct(was, job);
  if (was != nullptr) attempts_are_consecutive(*was, job);
  if (was != nullptr) states_follow_the_ladder(*was, job);
}

void Invariants::after_commit(bool is_idle) {
  if (++commits_ % kCommitsPerAccount == 0) accounts_add_up();
  if (is_idle) return;
  reload_equals_memory();
  job_numbers_are_unique();
  incidents_are_correct();
  accounts_add_up();
  world_.judge_outages();
  const bool forgets = world_.coordinator.disk().size() >= world_.core_options.finished_jobs_max;
  for (const JobId id : confirmed_) {
    world_.require(forgets || world_.coordinator.disk().contains(id), "job ", id.value(),
                   " was confirmed and is gone");
  }
}

void Invariants::note_confirmed(JobId job, const std::string& request_id) {
  confirmed_.insert(job);
  const JobId first = confirmed_requests_.try_emplace(request_id, job).first->second;
  // A job that has ended and was forgotten may be submitted again.
  world_.require(first == job || !world_.coordinator.disk().contains(first), request_id,
                 " was confirmed as job ", first.value(), " and then as job ", job.value());
}

void Invariants::reload_equals_memory() {
  const auto& disk = world_.coordinator.disk();
  const auto& memory = world_.coordinator.core().jobs();
  world_.require(disk.size() == memory.size(), "disk and memory have different jobs");
  for (const auto& [id, job] : memory) {
    const auto stored = disk.find(id);
    world_.require(stored != disk.end() && stored->second == durable(job),
                   "the disk's record of job ", id.value(), " differs from memory");
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
                   "the disk's record of ", name.value(), " differs from memory");
  }
}

// Judges stored numbers: a number whose job was lost with the coordinator may be assigned again.
void Invariants::job_numbers_are_unique() {
  std::set<JobId> stored;
  for (const auto& [id, job] : world_.coordinator.disk()) {
    stored.insert(id);
    if (stored_.contains(id)) continue;
    world_.require(id > newest_, "the number ", id.value(), " was given twice");
    newest_ = std::max(newest_, id);
  }
  stored_ = std::move(stored);
}

void Invariants::attempts_are_consecutive(const Job& before, const Job& job) {
  for (const auto& [cause, used] : job.restarts_used) {
    world_.require(used.count <= restarts_allowed(job.spec, cause),
                   "more restarts than allowed after ", av(rule_of(cause).name));
  }
  const bool by_leaving = !job.faults.empty() && is_preempted(job.faults.back());
  world_.require(!by_leaving || job.restarts == before.restarts, "job ", job.id.value(),
                 " paid for being preempted");
  // A rank is preempted only by its worker, which announces its shutdown before, unless the worker
  // has waited for the coordinator in vain.
  const bool by_rank = by_leaving && job.faults.back().rank.value() >= 0 && job.spec.nodes > 1 &&
                       job.faults.size() > before.faults.size();
  world_.require(!by_rank || world_.stopped_by_workers.contains(
                                 {world_.coordinator.store(), {job.id, before.attempt}}),
                 "job ", job.id.value(), ": ", job.faults.empty() ? "" : job.faults.back().message,
                 ", before any message with the reason");
  if (job.faults.size() > before.faults.size() && !job.faults.back().peer.value().empty()) {
    // TCP repeats a segment for the fourth time after three seconds. Before, a link may be back.
    constexpr Duration kCutMin = std::chrono::seconds(3);
    const Fault& fault = job.faults.back();
    const auto host_of = [](const WorkerName& name) { return std::stoi(name.value().substr(4)); };
    const Duration cut = world_.network.longest_cut(host_of(fault.worker), host_of(fault.peer));
    world_.require(cut >= kCutMin, "a link that was cut for only ", to_seconds(cut),
                   " s has ended an attempt: ", fault.message);
  }
  if (job.attempt != before.attempt) {
    world_.require(job.attempt.value() == before.attempt.value() + 1,
                   "attempts are not counted one by one");
    // An attempt of another revision is no retry.
    const bool is_new_revision =
        !before.faults.empty() && before.faults.back().revision != job.revision;
    if (!before.faults.empty() && !is_new_revision) {
      const Fault& fault = before.faults.back();
      // Bad input of a job that has trained, perhaps with fewer ranks, is a fault of a node.
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
                                  ? std::max(world_.core_options.worker_lease, lease_)
                                  : world_.core_options.unreachable_confirm;
    world_.require(last_message + patience <= world_.scheduler.now(), "attempt ",
                   before.attempt.value(), " of job ", before.id.value(), " was ended while rank ",
                   key.second.rank.value(), " runs on node", key.first);
  }
}

void Invariants::states_follow_the_ladder(const Job& before, const Job& job) {
  if (job.attempt != before.attempt || job.state == before.state) return;
  const auto is = [](JobState state, std::initializer_list<JobState> any) {
    return std::find(any.begin(), any.end(), state) != any.end();
  };
  if (job.state == JobState::kSuspect || job.state == JobState::kDumping) {
    world_.require(is_running(before.state) || before.state == JobState::kStarting, "job ",
                   job.id.value(), " is suspected before it ran");
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
      world_.require(id.value() == newest_incident_.value() + 1, "incident ", id.value(),
                     " follows ", newest_incident_.value());
      newest_incident_ = id;
    }
    if (incident.kind != IncidentKind::kHang || !judged_.insert(id).second) continue;
    const LaunchKey launch{{world_.coordinator.store(), incident.job}, incident.attempt};
    world_.require(world_.trainers.is_troubled(launch), "a false alarm: ", incident.sentence);
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
    world_.require(wall == now - started, "job ", id.value(), " has ", to_seconds(wall),
                   " s in its account, and began ", to_seconds(now - started), " s ago");
    const auto& incidents = world_.coordinator.disk_incidents();
    const auto record = incidents.find(job.recovering);
    world_.require(job.recovering == IncidentId(0) ||
                       (record != incidents.end() && is_unfinished(record->second)),
                   "job ", id.value(), " recovers without a record");
  }
}

void Invariants::outcomes_are_final_and_correct(const Job* before, const Job& job) {
  if (before != nullptr && is_terminal(before->state)) {
    world_.require(durable(*before) == durable(job), "job ", job.id.value(),
                   " changed after its end");
    return;
  }
  if (job.state == JobState::kSucceeded) {
    world_.require(
        std::ssize(world_.trainers.succeeded(
            {{world_.coordinator.store(), job.id}, job.attempt})) == std::ssize(job.placement),
        "job ", job.id.value(), " succeeded without all its ranks");
  }
  if (job.state == JobState::kCancelled)
    world_.require(job.cancel_requested || !job.spec.dependencies.empty(), "no user cancelled it");
  if (job.state == JobState::kFailed) world_.require(job.exit_code != 0, "it failed with code 0");
}

void Invariants::stale_events_change_nothing(const Event& event, const ActionList& actions) {
  if (const auto* exit = std::get_if<RankExited>(&event)) stale_exits_change_nothing(*exit);
  if (!sender_before_) return;
  const Worker& was = *sender_before_;
  const Worker& now = world_.coordinator.core().workers().at(was.name);
  const std::string what =
      absl::StrCat("an event of an earlier incarnation of ", was.name.value(), " ");
  world_.require(was.leaving == now.leaving, what + "changed whether the worker leaves");
  world_.require(was.connected == now.connected, what + "changed whether the worker is connected");
  // The core also processes the time since the last event, which may cause actions.
  if (last_event_at_ != world_.scheduler.now()) return;
  world_.require(was.last_message == now.last_message, what + "counted as a message");
  world_.require(actions.empty(), what + "caused an action");
}

void Invariants::stale_exits_change_nothing(const RankExited& exit) {
  const auto before = before_.find(exit.job);
  if (before == before_.end()) return;
  const Job& was = before->second;
  bool current = is_live(was.state) && was.attempt == exit.attempt;
  const auto index = static_cast<size_t>(exit.rank.value());
  // The ranks of a lost store's job may have higher numbers.
  current = current && index < was.placement.size();
  if (current) {
    const RankPlacement& placed = was.placement[index];
    current = placed.worker == exit.worker && placed.incarnation == exit.incarnation;
  }
  if (current || was.state == JobState::kQueued) return;
  const auto& jobs = world_.coordinator.core().jobs();
  const auto now = jobs.find(exit.job);
  world_.require(now == jobs.end() || durable(was) == durable(now->second),
                 "stale news changed job ", exit.job.value());
}

}  // namespace muster::simulation
