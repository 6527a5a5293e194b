// The life of one attempt: its ranks come up and end, and a fault or the last exit ends it.
#include <algorithm>

#include <absl/strings/str_cat.h>

#include "common/absl_view.h"
#include "common/exit_code.h"
#include "coordinator/core/core.h"
#include "coordinator/core/fleet/node_checks.h"
#include "coordinator/core/incident/recovery.h"
#include "coordinator/core/placement/hosts.h"
#include "coordinator/core/records/sizes.h"
#include "coordinator/core/recovery/avoidance.h"
#include "coordinator/core/recovery/restart_policy.h"

namespace muster::coordinator {
namespace {

RankState& state_of(Job& job, Rank rank) { return job.ranks[static_cast<size_t>(rank.value())]; }

// Copies the job's progress over all attempts to `fault`. `went_on_from`: the step from which the
// ending attempt resumed; that step was saved, if only in the memory of nodes.
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

bool all_ranks_are(const Job& job, const auto& predicate) {
  return std::all_of(job.ranks.begin(), job.ranks.end(), predicate);
}

std::string all_ranks_text(const Job& job) {
  return job.ranks.size() == 1 ? "its one rank" : absl::StrCat("all ", job.ranks.size(), " ranks");
}

Fault fault_without_rank(std::string message, int32_t exit_code, int64_t unix_ns) {
  Fault fault;
  fault.exit_code = exit_code;
  fault.message = std::move(message);
  fault.unix_ns = unix_ns;
  return fault;
}

}  // namespace

void Core::rank_up(Job& job, Rank rank) {
  RankState& state = state_of(job, rank);
  if (state.life != RankState::Life::kAssigned) return;
  state.life = RankState::Life::kUp;
  const bool all_up =
      all_ranks_are(job, [](const RankState& r) { return r.life != RankState::Life::kAssigned; });
  if (!all_up || !nothing_decided(job)) return;
  LiveAttempt& attempt = attempts_.at(job.id);
  attempt.start_deadline.reset();
  if (job.state != JobState::kStarting) return;
  job.state = JobState::kRunning;
  close_open_incidents(incidents_, job.id, absl::StrCat("attempt ", job.attempt.value(), " runs"),
                       time_.unix_ns);
  change(job, JobTransition::kUp);
  // An idle worker sends heartbeats less often: its earlier pauses do not predict those with ranks.
  for (const auto& [name, ranks] : attempt.ranks)
    if (Worker* worker = fleet_.find(name)) worker->longest_pause = Duration::zero();
  jobs_.note(job,
             absl::StrCat("attempt ", job.attempt.value(), ": every rank is up",
                          nodes_now(job) < job.spec.nodes ? absl::StrCat(", on ", size_text(job))
                                                          : std::string()));
}

void Core::rank_gone(Job& job, Rank rank) {
  state_of(job, rank).life = RankState::Life::kExited;
  if (const auto attempt = attempts_.find(job.id); attempt != attempts_.end())
    attempt->second.progress.forget(rank);
}

void Core::rank_exited(Job& job, RankExit exit, const WorkerName& worker) {
  if (state_of(job, exit.rank).life == RankState::Life::kExited) return;
  rank_up(job, exit.rank);  // a rank that exits was up
  rank_gone(job, exit.rank);
  state_of(job, exit.rank).step = std::max(state_of(job, exit.rank).step, exit.last_step);
  jobs_.store(job.id);
  LiveAttempt& attempt = attempts_.at(job.id);
  const bool is_fault = nothing_decided(job) && !is_success(exit);
  const bool is_caused =
      is_fault &&
      (is_victim(exit) ||
       (may_be_victim(exit) && misses_a_worker(attempt.view(job), worker, fleet_, time_.now)));
  if (is_caused) {
    if (!attempt.victim_deadline) attempt.victim_deadline = time_.now + options_.culprit_wait;
    attempt.reach.next_check = time_.now;  // an unreachable worker may explain it
    jobs_.note(job, absl::StrCat("rank ", exit.rank.value(),
                                 is_victim(exit) ? " lost a peer"
                                                 : " failed while a peer's worker is out of reach",
                                 "; waits for the report of the rank that died"));
  }
  job.exits.push_back(std::move(exit));
  if (is_fault && !is_caused) conclude(job);
  settle(job);
}

// Preempts all ranks of a model together: ranks that were preempted alone would wait for the others
// until they are killed, and their end would count as a fault.
void Core::preempt_ranks_of(const Worker& worker, Duration grace, const std::string& why) {
  for (const auto& [id, attempt] : attempts_) {
    Job& job = jobs_.at(id);
    if (!nothing_decided(job) || awaited_ranks(job, worker).empty()) continue;
    Fault cause = fault_without_rank(absl::StrCat("worker ", worker.name.value(), " ", why),
                                     to_int(ExitCode::kPreempted), time_.unix_ns);
    cause.worker = worker.name;
    for (const RankState& rank : job.ranks) cause.last_step = std::max(cause.last_step, rank.step);
    fault(job, std::move(cause), grace);
  }
}

void Core::fault(Job& job, Fault cause, Duration grace, IncidentKind kind) {
  leave_ladder(job);
  LiveAttempt& attempt = attempts_.at(job.id);
  close_inconclusive(incidents_, attempt.suspicion, "none: its attempt ended first", cause.message,
                     time_.unix_ns);
  job.state = JobState::kRestarting;
  cause.kind = kind;
  const bool made_a_step = attempt.progress.steps.made_a_step();
  note_progress(job, made_a_step ? attempt.progress.steps.base_step() : -1, cause);
  if (made_a_step) note_training(job);
  const int32_t there = nodes_possible(job, fleet_, nodes_, time_.unix_ns);
  const bool has_elsewhere = there > nodes_now(job) || smallest_size(job.spec) < nodes_now(job);
  cause.node_unfit = !made_a_step && has_elsewhere && is_of_unfit_node(job, cause, there);
  cause.productive = table_of(account_of(job, time_.now)).productive();
  keep_fault(job, std::move(cause));
  const RestartDecision decision = decide_restart(job);
  jobs_.note(job,
             absl::StrCat(decision.restart ? job.faults.back().message : "ends: " + decision.reason,
                          grace > Duration::zero() ? "; all ranks save and leave"
                                                   : "; the other ranks are stopped"));
  attempt.start_deadline.reset();
  attempt.victim_deadline.reset();
  record_fault(job, kind);
  stop_ranks(job, job.spec.is_program() ? std::max(grace, options_.last_words) : grace,
             job.faults.back().message);
  if (std::optional<NodeSuspicion> node = suspicion_after(nodes_, job))
    suspect_node(job.faults.back().worker, node->suspicion, std::move(node->reason));
}

// Records the newest fault as an incident, or as the outcome of the suspicion before it, and in the
// job's account.
void Core::record_fault(Job& job, IncidentKind kind) {
  const Fault& cause = job.faults.back();
  LiveAttempt& attempt = attempts_.at(job.id);
  Ledger& ledger = accounts_.of(job.id);
  if (is_preempted(cause)) return ledger.stopping(LossCause::kPreempted, time_.now);
  const Instant progress = attempt.progress.last_progress(job, time_.now);
  const Incident* known = attempt.incident ? incidents_.find(*attempt.incident) : nullptr;
  if (known == nullptr || known->kind != kind) {
    attempt.incident =
        incidents_.open(incident_of_fault(job, cause, kind, time_.unix_ns_of(progress)));
    attempt.crash.incident = attempt.incident;
    take_crash_evidence(*incidents_.change(*attempt.incident), job, cause, attempt.crash,
                        time_.now);
  } else if (kind != IncidentKind::kHang) {  // its verdict is already recorded
    incidents_.note(*attempt.incident, time_.unix_ns, cause.message);
  }
  incidents_.change(*attempt.incident)->action = action_text(decide_restart(job), cause);

  end_recovery(job, *attempt.incident);
  const bool suspected = kind == IncidentKind::kHang || kind == IncidentKind::kWorkerLost;
  const HangSuspicion& suspicion = attempt.suspicion;
  const Instant detected =
      suspected && suspicion.suspected > progress ? suspicion.suspected : time_.now;
  // A hang that was sampled repeatedly has had evidence since the first sample.
  const Instant evidence =
      suspected && suspicion.evidence > detected ? suspicion.evidence : time_.now;
  begin_recovery(incidents_, job, *attempt.incident,
                 {time_.unix_ns_of(progress), time_.unix_ns_of(detected),
                  time_.unix_ns_of(evidence), time_.unix_ns},
                 std::max(ledger.best_step(), cause.last_step));
  ledger.fault(kind, progress, time_.now);
}

void Core::stop_ranks(Job& job, Duration grace, std::string_view reason) {
  job.stop_grace = grace;
  attempts_.at(job.id).kill.expect_ends(grace, options_, time_.now);
  jobs_.store(job.id);
  std::set<WorkerName> ordered;
  for (const RankPlacement& rank : job.placement) {
    const Worker* worker = fleet_.find(rank.worker);
    if (worker == nullptr || !ordered.insert(rank.worker).second) continue;
    std::vector<Rank> awaited = awaited_ranks(job, *worker);
    if (awaited.empty()) continue;
    send(*worker, SendStopRanks{job.id, job.attempt, grace, std::string(reason), std::move(awaited),
                                waits_for_save(job)});
  }
}

// Only the user waits for the end of a cancelled job, not another attempt.
bool Core::waits_for_save(const Job& job) const {
  return options_.cancel_waits_for_save && job.cancel_requested &&
         job.stop_grace > Duration::zero();
}

void Core::settle(Job& job) {
  if (job.state == JobState::kRestarting)
    attempts_.at(job.id).reach.next_check = time_.now;  // find out which workers are still awaited
  const bool all_gone =
      all_ranks_are(job, [](const RankState& r) { return r.life == RankState::Life::kExited; });
  if (!all_gone) return;
  if (job.cancel_requested) {
    const int64_t stuck = stuck_ranks_of(job, fleet_);
    finish(job, JobState::kCancelled, to_int(ExitCode::kInterrupted),
           absl::StrCat("cancelled; ", all_ranks_text(job), job.ranks.size() == 1 ? " is" : " are",
                        " gone",
                        stuck > 0 ? absl::StrCat(", but for ", stuck, " that cannot be killed")
                                  : std::string()));
    return;
  }
  // This includes an attempt that succeeded before its stop order arrived.
  if (std::all_of(job.exits.begin(), job.exits.end(), is_success) &&
      job.exits.size() == job.ranks.size()) {
    finish(job, JobState::kSucceeded, to_int(ExitCode::kOk),
           absl::StrCat(all_ranks_text(job), " exited with code 0"));
    return;
  }
  if (job.state == JobState::kRestarting) {
    end_attempt(job);
    return;
  }
  conclude(job);
  settle(job);
}

// Evaluates the exits in the order of their reports. The first exit that explains the others is the
// culprit; there may be none.
void Core::conclude(Job& job) {
  auto culprit = std::ranges::find_if(job.exits, [](const RankExit& exit) {
    return !is_success(exit) && !is_victim(exit) && !may_be_victim(exit);
  });
  if (culprit == job.exits.end()) culprit = std::ranges::find_if(job.exits, may_be_victim);
  if (culprit == job.exits.end())
    return fault(job, fault_without_culprit(job, time_.unix_ns), Duration::zero());
  // Preempted ranks agree on a step and write a checkpoint together, so the other ranks get the
  // same grace.
  const Duration grace = is_preempted(*culprit) ? options_.cancel_grace : Duration::zero();
  const WorkerName& worker = job.placement[static_cast<size_t>(culprit->rank.value())].worker;
  fault(job, fault_of(*culprit, worker, time_.unix_ns), grace, kind_of_exit(*culprit));
}

// Requires RESTARTING with every rank gone: the newest fault is the cause.
void Core::end_attempt(Job& job) {
  LiveAttempt& attempt = attempts_.at(job.id);
  complete_crash(incidents_, attempt.crash);
  change(job, JobTransition::kGone);
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
  attempt.progress.close_stragglers(incidents_, time_.unix_ns);
  forget_attempt(job);
  jobs_.note(job, std::move(decision.reason));
  const Instant ready = time_.now + decision.delay;
  job.not_before_unix_ns = decision.delay > Duration::zero() ? time_.unix_ns_of(ready) : 0;
  queue_.add(job.id, job.spec.priority, ready, ready + options_.whole_wait,
             hold_until(job, ready, options_.keep_nodes));
  schedule_needed_ = true;
}

void Core::finish(Job& job, JobState state, int32_t exit_code, std::string reason) {
  leave_ladder(job);
  if (const auto attempt = attempts_.find(job.id); attempt != attempts_.end()) {
    complete_crash(incidents_, attempt->second.crash);
    close_inconclusive(incidents_, attempt->second.suspicion, "none: the job ended first",
                       "the job has ended", time_.unix_ns);
  }
  close_open_incidents(incidents_, job.id, absl::StrCat("the job is ", av(job_state_name(state))),
                       time_.unix_ns);
  job.state = state;
  job.exit_code = exit_code;
  job.finished_unix_ns = time_.unix_ns;
  change(job, JobTransition::kEnded);
  job.held.clear();
  // The environment may contain tokens and passwords. Only attempts need the values, and there will
  // be none.
  for (auto& [name, value] : job.spec.environment) value.clear();
  for (SmallerJob& size : job.spec.smaller) size.train_config_json.clear();
  jobs_.note(job, std::move(reason));
  forget_attempt(job);
  jobs_.end(job);
  // Any worker may have retained data of the job since an early attempt. A worker that is not
  // connected learns the job's end when it registers.
  for (const auto& [name, worker] : fleet_.all())
    if (worker.connected) send(worker, SendJobEnded{job.id});
  schedule_needed_ = true;
}

void Core::change(Job& job, JobTransition transition) {
  mark_transition(incidents_, job, transition, time_.unix_ns);
  if (transition != JobTransition::kEnded)
    return accounts_.enter(job.id, transition, job.spec.is_program(), time_.now);
  end_recovery(job, IncidentId(0));
  job.account = accounts_.close(job.id, time_.now, time_.unix_ns);
}

void Core::end_recovery(Job& job, IncidentId interrupted_by) {
  const auto attempt = attempts_.find(job.id);
  const bool shows_no_steps =
      attempt != attempts_.end() && attempt->second.progress.hang.is_silent();
  if (coordinator::end_recovery(incidents_, job, interrupted_by, shows_no_steps))
    jobs_.store(job.id);
}

void Core::forget_attempt(const Job& job) {
  const auto attempt = attempts_.find(job.id);
  if (attempt == attempts_.end()) return;
  const HangSuspicion& suspicion = attempt->second.suspicion;
  if (suspicion.inconclusive) incidents_.settle(suspicion.inconclusive->incident);
  if (attempt->second.reach.silence) incidents_.settle(*attempt->second.reach.silence);
  attempts_.erase(attempt);
}

void Core::check_attempts() {
  for (const JobId id : live_jobs()) {
    Job& job = jobs_.at(id);
    const LiveAttempt& attempt = attempts_.at(id);
    if (!nothing_decided(job)) continue;
    if (attempt.victim_deadline && *attempt.victim_deadline <= time_.now &&
        !awaits_a_worker(job, fleet_)) {
      conclude(job);
      settle(job);
      continue;
    }
    if (!attempt.start_deadline || *attempt.start_deadline > time_.now) continue;
    const auto waiting = std::find_if(job.ranks.begin(), job.ranks.end(), [](const RankState& r) {
      return r.life == RankState::Life::kAssigned;
    });
    const auto rank = static_cast<size_t>(waiting - job.ranks.begin());
    Fault cause = fault_without_rank(
        absl::StrCat("rank ", rank, " on ", job.placement[rank].worker.value(),
                     " was not up within ", to_seconds(options_.start_budget), " s"),
        to_int(ExitCode::kFailure), time_.unix_ns);
    cause.rank = Rank(static_cast<int32_t>(rank));
    cause.worker = job.placement[rank].worker;
    fault(job, std::move(cause), Duration::zero(), IncidentKind::kNotStarted);
    settle(job);
  }
}

}  // namespace muster::coordinator
