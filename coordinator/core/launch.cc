// One attempt of one job: its ranks come up and go, a fault or the last exit ends it.
#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/core.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

RankState& state_of(Job& job, Rank rank) { return job.ranks[static_cast<size_t>(rank.value())]; }

// What the job has saved and done by now, and in all attempts before. `went_on_from`: of the attempt that ends; a step that one could go on from was
// saved, if only in nodes' memory.
void note_progress(const Job& job, int64_t went_on_from, Fault& fault) {
  if (!job.faults.empty()) {
    fault.checkpoint_step = job.faults.back().checkpoint_step;
    fault.went_on_from = job.faults.back().went_on_from;
    fault.job_step = job.faults.back().job_step;
  }
  fault.went_on_from = std::max(fault.went_on_from, went_on_from);
  fault.job_step = std::max(fault.job_step, fault.last_step);
  for (const RankState& rank : job.ranks) {
    fault.checkpoint_step = std::max(fault.checkpoint_step, rank.checkpoint_step);
    fault.job_step = std::max(fault.job_step, rank.step);
  }
}

bool nothing_decided(const Job& job) {
  return (job.state == JobState::kStarting || is_running(job.state)) && !job.cancel_requested;
}

std::string all_ranks(const Job& job) {
  return job.ranks.size() == 1 ? "its one rank" : absl::StrCat("all ", job.ranks.size(), " ranks");
}

Fault faultless(std::string message, int32_t exit_code, int64_t unix_ns) {
  Fault fault;
  fault.exit_code = exit_code;
  fault.message = std::move(message);
  fault.unix_ns = unix_ns;
  return fault;
}

}  // namespace

// Rank 0 alone: its vote makes all ranks save after the same step.
absl::Status Core::ask_for_checkpoint(const Job& job) {
  const std::string name = absl::StrCat("job ", job.id.value());
  if (!is_running(job.state) || job.cancel_requested) {
    const std::string state =
        job.cancel_requested ? "being cancelled"
                             : absl::StrCat("not running (", av(job_state_name(job.state)), ")");
    return absl::FailedPreconditionError(
        absl::StrCat(name, " is ", state, "; a job is asked while it trains"));
  }
  const RankPlacement& placed = job.placement.front();
  const RankState& rank = job.ranks.front();
  if (rank.life != RankState::Life::kUp || rank.checkpoints.on_request == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        name,
        " saves no checkpoint on request: its rank 0 has not begun to train, or runs with "
        "enable_checkpointing=False, or is a program that does not know how"));
  }
  const auto worker = workers_.find(placed.worker);
  if (worker == workers_.end() || !worker->second.connected) {
    return absl::FailedPreconditionError(absl::StrCat(
        name, ": worker ", placed.worker.value(), " of rank 0 is not connected now; ask again"));
  }
  launches_[job.id].checkpoint_after = std::max<int64_t>(rank.step, 0);
  send(worker->second, SendSaveCheckpoint{job.id, job.attempt, placed.rank});
  return absl::OkStatus();
}

void Core::rank_up(Job& job, Rank rank) {
  RankState& state = state_of(job, rank);
  if (state.life != RankState::Life::kAssigned) return;
  state.life = RankState::Life::kUp;
  const bool all_up = std::none_of(job.ranks.begin(), job.ranks.end(), [](const RankState& r) {
    return r.life == RankState::Life::kAssigned;
  });
  if (!all_up || !nothing_decided(job)) return;
  Launch& launch = launches_[job.id];
  launch.start_deadline.reset();
  if (job.state == JobState::kStarting) {
    job.state = JobState::kRunning;
    resume_incidents(job);
    account(job, JobTurn::kUp);
    // An idle worker's pauses are longer, and say nothing of what comes.
    for (const auto& [name, ranks] : launch.ranks) {
      if (const auto worker = workers_.find(name); worker != workers_.end())
        worker->second.longest_pause = Duration::zero();
    }
    note(job, absl::StrCat("attempt ", job.attempt.value(), ": every rank is up",
                           nodes_now(job) < job.spec.nodes ? absl::StrCat(", on ", size_text(job))
                                                           : std::string()));
  }
}

void Core::rank_gone(Job& job, Rank rank) {
  state_of(job, rank).life = RankState::Life::kExited;
  if (const auto launch = launches_.find(job.id); launch != launches_.end())
    forget_rank(launch->second, rank);
}

void Core::rank_exited(Job& job, RankExit exit, const WorkerName& worker) {
  if (state_of(job, exit.rank).life == RankState::Life::kExited) return;
  rank_up(job, exit.rank);  // who exits has been up
  rank_gone(job, exit.rank);
  state_of(job, exit.rank).step = std::max(state_of(job, exit.rank).step, exit.last_step);
  persist_.insert(job.id);
  if (nothing_decided(job) && !is_success(exit)) {
    if (is_victim(exit) || (may_be_victim(exit) && misses_a_worker(job, worker))) {
      Launch& launch = launches_[job.id];
      if (!launch.victim_deadline) launch.victim_deadline = now_ + options_.culprit_wait;
      launch.reach_check = now_;  // a worker that is away explains it
      note(job, absl::StrCat("rank ", exit.rank.value(),
                             is_victim(exit) ? " lost a peer"
                                             : " failed while a peer's worker is out of reach",
                             "; waits for the report of the rank that died"));
    } else {
      job.exits.push_back(std::move(exit));
      conclude(job);
      settle(job);
      return;
    }
  }
  job.exits.push_back(std::move(exit));
  settle(job);
}

// Ranks that share a model leave together: where those of `worker` alone were asked, they would wait for the others until they are
// killed, and their end would be a fault.
void Core::preempt_ranks_of(const Worker& worker, Duration grace, const std::string& why) {
  for (const auto& [id, launch] : launches_) {
    Job& job = jobs_.at(id);
    if (!nothing_decided(job) || awaited_ranks(job, worker).empty()) continue;
    Fault cause = faultless(absl::StrCat("worker ", worker.name.value(), " ", why),
                            to_int(ExitCode::kPreempted), unix_ns_);
    cause.worker = worker.name;
    for (const RankState& rank : job.ranks) cause.last_step = std::max(cause.last_step, rank.step);
    fault(job, std::move(cause), grace);
  }
}

void Core::fault(Job& job, Fault cause, Duration grace, IncidentKind kind) {
  leave_ladder(job);
  end_doubt(job, "none: its attempt ended first", cause.message);
  job.state = JobState::kRestarting;
  cause.kind = kind;
  const std::optional<AttemptWatch>& attempt = launches_.at(job.id).attempt;
  const bool made_a_step = attempt && attempt->made_a_step();
  note_progress(job, made_a_step ? attempt->base_step() : -1, cause);
  if (made_a_step) note_training(job);
  const int32_t there = nodes_for(job);
  const bool has_elsewhere = there > nodes_now(job) || smallest_size(job.spec) < nodes_now(job);
  cause.node_unfit = !made_a_step && has_elsewhere && is_of_unfit_node(job, cause, there);
  cause.productive = table_of(account_of(job, now_)).productive();
  keep_fault(job, std::move(cause));
  const RestartDecision decision = decide_restart(job);
  note(job, absl::StrCat(decision.restart ? job.faults.back().message : "ends: " + decision.reason,
                         grace > Duration::zero() ? "; all ranks save and leave"
                                                  : "; the other ranks are stopped"));
  launches_[job.id].start_deadline.reset();
  launches_[job.id].victim_deadline.reset();
  if (!is_preempted(job.faults.back())) record_fault(job, kind);
  account_fault(job, kind);
  stop_ranks(job, job.spec.is_program() ? std::max(grace, options_.last_words) : grace,
             job.faults.back().message);
  blame_node(job);
}

// The newest fault as an incident, or as what the suspicion before it has come to.
void Core::record_fault(Job& job, IncidentKind kind) {
  const Fault& cause = job.faults.back();
  Launch& launch = launches_.at(job.id);
  const Incident* known = launch.incident ? incidents_.find(*launch.incident) : nullptr;
  if (known == nullptr || known->kind != kind) {
    launch.incident =
        incidents_.open(incident_of_fault(job, cause, kind, unix_ns_of(last_progress_of(job))));
    launch.crash.incident = launch.incident;
    take_crash_evidence(*incidents_.change(*launch.incident), job, cause, launch.crash, now_);
  } else if (kind != IncidentKind::kHang) {  // whose verdict is noted already
    incidents_.note(*launch.incident, unix_ns_, cause.message);
  }
  incidents_.change(*launch.incident)->action = action_text(decide_restart(job), cause);
}

// Once, and not with each rank that ends: a record may be large. What other ranks were doing, their pages told after their deaths.
void Core::complete_crash(const Job& job) {
  const auto launch = launches_.find(job.id);
  if (launch == launches_.end() || !launch->second.crash.incident) return;
  const CrashEvidence& crash = launch->second.crash;
  const Incident* incident = incidents_.find(*crash.incident);
  if (incident == nullptr) return;
  if (Incident told = *incident; complete_crash_evidence(told, crash))
    *incidents_.change(*crash.incident) = std::move(told);
}

void Core::stop_ranks(Job& job, Duration grace, std::string_view reason) {
  job.stop_grace = grace;
  expect_ends(launches_.at(job.id), grace);
  persist_.insert(job.id);
  std::set<WorkerName> told;
  for (const RankPlacement& rank : job.placement) {
    const auto it = workers_.find(rank.worker);
    if (it == workers_.end() || !told.insert(rank.worker).second) continue;
    std::vector<Rank> awaited = awaited_ranks(job, it->second);
    if (awaited.empty()) continue;
    send(it->second,
         SendStopRanks{job.id, job.attempt, grace, std::string(reason), std::move(awaited)});
  }
}

// Those placed on this life of `worker` that have not ended.
std::vector<Rank> Core::awaited_ranks(const Job& job, const Worker& worker) const {
  std::vector<Rank> awaited;
  for (const RankPlacement& rank : job.placement) {
    const RankState& state = job.ranks[static_cast<size_t>(rank.rank.value())];
    const bool here = rank.worker == worker.name && rank.incarnation == worker.incarnation;
    if (here && state.life != RankState::Life::kExited) awaited.push_back(rank.rank);
  }
  return awaited;
}

void Core::settle(Job& job) {
  if (job.state == JobState::kRestarting)
    launches_.at(job.id).reach_check = now_;  // who is still awaited?
  const bool all_gone = std::all_of(job.ranks.begin(), job.ranks.end(), [](const RankState& r) {
    return r.life == RankState::Life::kExited;
  });
  if (!all_gone) return;
  if (job.cancel_requested) {
    const int64_t stuck = stuck_ranks_of(job);
    finish(
        job, JobState::kCancelled, to_int(ExitCode::kInterrupted),
        absl::StrCat("cancelled; ", all_ranks(job), job.ranks.size() == 1 ? " is" : " are", " gone",
                     stuck > 0 ? absl::StrCat(", but for ", stuck, " that cannot be killed")
                               : std::string()));
    return;
  }
  // Also of an attempt that was asked to leave, and was through before it heard of it.
  if (std::all_of(job.exits.begin(), job.exits.end(), is_success) &&
      job.exits.size() == job.ranks.size()) {
    finish(job, JobState::kSucceeded, to_int(ExitCode::kOk),
           absl::StrCat(all_ranks(job), " exited with code 0"));
    return;
  }
  if (job.state == JobState::kRestarting) {
    end_attempt(job);
    return;
  }
  conclude(job);
  settle(job);
}

// By the exits that there are: the first that explains the others, or none does. Reports come in their order.
void Core::conclude(Job& job) {
  auto culprit = std::ranges::find_if(job.exits, [](const RankExit& exit) {
    return !is_success(exit) && !is_victim(exit) && !may_be_victim(exit);
  });
  if (culprit == job.exits.end()) culprit = std::ranges::find_if(job.exits, may_be_victim);
  if (culprit == job.exits.end())
    return fault(job, fault_without_culprit(job, unix_ns_), Duration::zero());
  // The preempted agree on a step and write a checkpoint together: the rest need the same time.
  const Duration grace = is_preempted(*culprit) ? options_.cancel_grace : Duration::zero();
  const WorkerName& worker = job.placement[static_cast<size_t>(culprit->rank.value())].worker;
  fault(job, fault_of(*culprit, worker, unix_ns_), grace, kind_of_exit(*culprit));
}

// Who was told to leave is gone for good.
Instant Core::keep_until(const Job& job, Instant ready) const {
  const bool waits = !job.faults.empty() && !is_preempted(job.faults.back());
  return waits ? ready + options_.keep_nodes : Instant{};
}

// Requires RESTARTING with every rank gone: the newest fault is the cause.
void Core::end_attempt(Job& job) {
  complete_crash(job);
  account(job, JobTurn::kGone);
  RestartDecision decision = decide_restart(job);
  if (!decision.restart) {
    finish(job, JobState::kFailed, exit_code_of(job.faults.back()), std::move(decision.reason));
    return;
  }
  count_restart(job, decision);
  job.state = JobState::kQueued;
  job.previous_nodes = nodes_of(job.placement);
  job.placement.clear();
  job.ranks.clear();
  job.exits.clear();
  for (const auto& [rank, id] : launches_.at(job.id).slow) {
    incidents_.note(id, unix_ns_, "its attempt has ended");
    incidents_.close(id);
  }
  forget_launch(job);
  note(job, std::move(decision.reason));
  const Instant ready = now_ + decision.delay;
  job.not_before_unix_ns = decision.delay > Duration::zero() ? unix_ns_of(ready) : 0;
  queue_.add(job.id, job.spec.priority, ready, ready + options_.whole_wait, keep_until(job, ready));
  schedule_needed_ = true;
}

void Core::finish(Job& job, JobState state, int32_t exit_code, std::string reason) {
  leave_ladder(job);
  complete_crash(job);
  end_doubt(job, "none: the job ended first", "the job has ended");
  close_incidents(job, absl::StrCat("the job is ", av(job_state_name(state))));
  job.state = state;
  job.exit_code = exit_code;
  job.finished_unix_ns = unix_ns_;
  account(job, JobTurn::kEnded);
  job.held.clear();
  // Tokens and passwords among them: only an attempt needs the values, and there will be none.
  for (auto& [name, value] : job.spec.environment) value.clear();
  for (SmallerJob& size : job.spec.smaller) size.train_config_json.clear();
  note(job, std::move(reason));
  forget_launch(job);
  release_output(job);
  tell_job_ended(job.id);
  finished_.emplace(job.finished_unix_ns, job.id);
  schedule_needed_ = true;
}

bool Core::awaits_a_worker(const Job& job) const {
  return std::any_of(job.placement.begin(), job.placement.end(), [&](const RankPlacement& rank) {
    if (job.ranks[static_cast<size_t>(rank.rank.value())].life == RankState::Life::kExited)
      return false;
    const auto it = workers_.find(rank.worker);
    return it != workers_.end() && (!it->second.connected || !it->second.missing.empty());
  });
}

void Core::check_launch_deadlines() {
  std::vector<JobId> live;
  for (const auto& [id, launch] : launches_) live.push_back(id);
  for (const JobId id : live) {
    Job& job = jobs_.at(id);
    const Launch& launch = launches_.at(id);
    if (!nothing_decided(job)) continue;
    if (launch.victim_deadline && *launch.victim_deadline <= now_ && !awaits_a_worker(job)) {
      conclude(job);
      settle(job);
      continue;
    }
    if (launch.start_deadline && *launch.start_deadline <= now_) {
      const auto waiting = std::find_if(job.ranks.begin(), job.ranks.end(), [](const RankState& r) {
        return r.life == RankState::Life::kAssigned;
      });
      const auto rank = static_cast<size_t>(waiting - job.ranks.begin());
      Fault cause =
          faultless(absl::StrCat("rank ", rank, " on ", job.placement[rank].worker.value(),
                                 " was not up within ", to_seconds(options_.start_budget), " s"),
                    to_int(ExitCode::kFailure), unix_ns_);
      cause.rank = Rank(static_cast<int32_t>(rank));
      cause.worker = job.placement[rank].worker;
      fault(job, std::move(cause), Duration::zero(), IncidentKind::kNotStarted);
      settle(job);
    }
  }
}

}  // namespace muster::coordinator
